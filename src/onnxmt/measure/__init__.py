"""Measuring bundles: verification against the judge, and later evaluation, benchmarks and the report."""
