"""Threads of one worker that update its parameters without locks. Guide: docs/hogwild.md"""
