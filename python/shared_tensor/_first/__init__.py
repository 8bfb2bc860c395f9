"""The classes of shared-tensor 0.1, on top of Client and SharedTensorProvider. Import them from the paths that they had
there: shared_tensor.client, .async_client, .async_provider, .server. docs/migrating.md compares them."""
