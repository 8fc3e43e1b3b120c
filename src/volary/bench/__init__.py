"""Ranks that meet and measure what these machines and links carry: `volary bench`. Guide: docs/collectives.md

local        starts ranks on this machine
meeting      ranks find each other and join a group                 (imports torch)
entrants     the ways of a collective, beside torch's own           (imports torch)
collectives  times them over sizes                                  (imports torch)
"""
