"""The store: immutable versions of bundles under names, aliases that are switched in one step, and their history."""
