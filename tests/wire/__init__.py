"""Official clients and servers over real sockets and pipes."""
