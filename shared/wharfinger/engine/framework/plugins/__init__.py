"""The built-in plugins, one file each, under their names in Kubernetes. `engine.framework.registry` lists them."""
