"""Communication between a run's processes: one keyed server, its services, and torch's groups on top.

    errors      KeyRefused, ConnectionLost, OtherAttempt, BadFrame, BadMessage
    frames      length + msgpack, with the limit checked before memory is taken
    handshake   both sides prove the run's key, neither sends it
    sealing     encryption of one direction of one connection
    connection  Connection: a client's end
    service     what a server carries: the protocol of a plain state machine
    server      KeyedServer: a run's only listening socket; peer is one connection of it
    board       Board: the key-value service at which workers meet
    store       KeyedStore: the board as a torch store                     (imports torch)
    gloo        a backend that binds gloo and closes its port              (imports torch)
    group       groups of ranks: joined, divided, left                     (imports torch)
    transports  messages with tensors behind them between two processes, one file each
    listening_sockets   closes those that gloo keeps open
    topology    which ranks share a node, which nodes a sub-network; tournament measures the links
    links       from one rank of a group to another                        (imports torch)
    routes      ways to sum over all ranks, one file each
    collectives broadcast, reduce, reduce-scatter, all-gather              (imports torch)
    switch_points   which way is the fastest from which size on
    listeners   which sockets of which processes listen where

Nothing is imported here. Guide: docs/security.md
"""
