"""Built-in plugins that neither filter nor score nodes, one file each, under their Kubernetes
names. `engine.framework.registry` lists them."""
