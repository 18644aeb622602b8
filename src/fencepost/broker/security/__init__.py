"""Who a connection belongs to, and what it may do. Nothing in here touches a socket."""
