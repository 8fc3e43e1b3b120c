"""The parameter server: who keeps slices of the parameters elsewhere, who uses them, and who hands out the work.

Plain state machines over messages and a clock that is handed in: shard.py keeps slices, client.py is one worker's view
of all servers, roster.py knows who is here, what is to be done and which contributions make an update. Below them:
the messages that they send, protocol/; slices.py, how parameters are cut. What moves bytes and touches
tensors lies beside: host.py around a shard, link.py around a client. Guide: docs/server.md
"""
