"""The command-line client: `call` and `tasks`, written from the protocol texts alone.

It shares no code with the gateway's translators, so that each can show a mistake of the other.
"""
