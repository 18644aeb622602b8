"""The page: what any cluster's transactions do, live in a browser. It sees clusters through `fencepost.insight`."""
