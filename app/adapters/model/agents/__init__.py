"""Agents: commands that change the files of a program, asked like models.

An agent runs in a folder of its own, with the program's files and a task.  Its only way to the
network is a proxy of ours that passes requests on to the run's model, holds the key and counts the
tokens.  Its reply is the files that it leaves.
"""
