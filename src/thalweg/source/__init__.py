"""Where rows come from: sources, what they have to offer (units), how it is cut (splits) and read (chunks).

    source -> inventory: a numbered, durable list of units -> splits -> read -> Arrow tables

Everything a source offers is an append-only list of units per stream, so that an offset is one number. One contract,
one file for each kind, one line for each here.
"""

KINDS = {
    "files": "thalweg.source.files:FILES",
    "memory": "thalweg.source.memory:MEMORY",
    "generate": "thalweg.source.generate:GENERATE",
    "spark": "thalweg.source.landed:SPARK",
}
