"""The members of a run over servers: its workers and servers, who lets them in, and what follows when one is gone."""
