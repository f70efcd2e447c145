"""One file a tokenizer family; `onnxmt.runtime.tokenizer` chooses among them."""
