"""Functions of strings. None makes a string of more than some size from a shorter one."""

from __future__ import annotations

import math

from thalweg.frontend.code import Code, emit, error, literal
from thalweg.frontend.scalars.contract import Context, Emit, entries
from thalweg.frontend.tree import Call


def _string(c: Context, node: Call, arg: Code) -> Code:
    return c.cast(arg, "string", node)


def _over_strings(template: str, type_: str = "string") -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        strings = [_string(c, node, arg) for arg in args]
        return emit(template.format(*(s.sql for s in strings)), type_, *strings)

    return emit_


def _trim(word: str, chars_first: bool) -> Emit:
    """Blanks are spaces only; characters may be given, before the string or after it."""

    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        strings = [_string(c, node, arg) for arg in args]
        if len(strings) == 1:
            return emit(f"{word}({strings[0].sql}, ' ')", "string", *strings)
        chars, arg = strings if chars_first else strings[::-1]
        return emit(f"{word}({arg.sql}, {chars.sql})", "string", arg, chars)

    return emit_


def _integer(c: Context, node: Call, code: Code) -> Code:
    return c.cast(code, "int", node)


_LEAST_INT = -(2**31)


def _substring(c: Context, node: Call, args: list[Code]) -> Code:
    """Position 0 counts as 1, a negative one from the end; what lies before the string is cut off."""
    s, at = _string(c, node, args[0]), _integer(c, node, args[1])
    length = _integer(c, node, args[2]) if len(args) == 3 else None
    if length is None and (at.literal is None or at.literal == _LEAST_INT):
        length = literal(-_LEAST_INT - 1, "int")  # as Spark has it: from the least position on it is one too few
    parts = [s, at] if length is None else [s, at, length]
    size = f"length({s.sql})"
    if isinstance(at.literal, int) and at.literal >= 0:
        start = str(max(0, at.literal - 1))
    elif isinstance(at.literal, int):
        start = f"({size} - {-at.literal})"
    else:
        p = f"CAST({at.sql} AS BIGINT)"
        start = f"CASE WHEN {p} > 0 THEN {p} - 1 WHEN {p} < 0 THEN {size} + {p} ELSE 0 END"
    first = f"greatest({start}, 0) + 1"
    if length is None:
        sql = f"substring({s.sql}, {first})"
    else:
        taken = f"greatest(CAST({length.sql} AS BIGINT) + least({start}, 0), 0)"
        sql = f"substring({s.sql}, {first}, {taken})"
    nulls = " OR ".join(f"{part.sql} IS NULL" for part in parts[1:] if part.literal is None)
    # greatest and least pass over NULL, the function must not.
    return emit(f"CASE WHEN {nulls} THEN NULL ELSE {sql} END" if nulls else sql, "string", *parts)


def _left(c: Context, node: Call, args: list[Code]) -> Code:
    s, n = _string(c, node, args[0]), _integer(c, node, args[1])
    taken = f"CASE WHEN {n.sql} < 0 THEN 0 ELSE {n.sql} END" if n.literal is None else str(max(0, _int(n)))
    return emit(f"left({s.sql}, {taken})", "string", s, n)


def _right(c: Context, node: Call, args: list[Code]) -> Code:
    s, n = _string(c, node, args[0]), _integer(c, node, args[1])
    taken = f"CASE WHEN {n.sql} < 0 THEN 0 ELSE {n.sql} END" if n.literal is None else str(max(0, _int(n)))
    return emit(f"right({s.sql}, {taken})", "string", s, n)


def _int(code: Code) -> int:
    return code.literal if isinstance(code.literal, int) else 0


MOST_MADE = 1_000_000
"""Characters, or bytes of them, that a function may make of a shorter string: the memory is everybody's."""
MOST_GROWTH = 8
"""How many times as long as its argument a string may always be."""


def _check_length(c: Context, node: Call, length: int) -> None:
    if length > MOST_MADE:
        raise c.refuse(f"{node.name} to {length:,}", node, f"{MOST_MADE:,} are the most")


def _unless(condition: str, name: str, sql: str) -> str:
    """`sql`, or an error by which its query is stopped."""
    said = error("RESULT_TOO_LONG", f"{name} would make a string of more than {MOST_MADE:,} bytes", "string")
    return f"CASE WHEN {condition} THEN {said} ELSE {sql} END"


def _size(text: str) -> int:
    return len(text.encode())


def _pad(word: str) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        s, n = _string(c, node, args[0]), _integer(c, node, args[1])
        pad = args[2] if len(args) == 3 else literal(" ", "string")
        if not isinstance(pad.literal, str) or not pad.literal or not isinstance(n.literal, int):
            raise c.refuse(f"{word} with a length or padding that is not a literal (or empty)", node)
        _check_length(c, node, n.literal)
        return emit(f"{word}({s.sql}, {max(0, n.literal)}, {pad.sql})", "string", s, growth=1)

    return emit_


def _concat(c: Context, node: Call, args: list[Code]) -> Code:
    return c.concat(args, node) if args else literal("", "string")


def _replace(c: Context, node: Call, args: list[Code]) -> Code:
    strings = [_string(c, node, arg) for arg in args]
    if len(strings) == 2:
        strings.append(literal("", "string"))
    sql = f"replace({', '.join(s.sql for s in strings)})"
    s, old, new = strings
    if isinstance(old.literal, str) and isinstance(new.literal, str):
        growth = s.growth * max(1, math.ceil(_size(new.literal) / max(1, _size(old.literal))))
        if growth <= MOST_GROWTH:
            return emit(sql, "string", *strings, growth=growth)
    size, found = f"strlen({s.sql})", f"strlen(replace({s.sql}, {old.sql}, ''))"
    # Without anything to look for, there is nothing to divide by, and NULL is not too many.
    times = f"(({size} - {found}) // nullif(strlen({old.sql}), 0))"
    made = f"({size} + {times} * (strlen({new.sql}) - strlen({old.sql})))"
    most = f"greatest({MOST_MADE}, {MOST_GROWTH} * {size})"
    return emit(_unless(f"{made} > {most}", "replace", sql), "string", *strings, fails=True, growth=1)


def _repeat(c: Context, node: Call, args: list[Code]) -> Code:
    s, n = _string(c, node, args[0]), _integer(c, node, args[1])
    sql = f"repeat({s.sql}, CAST({n.sql} AS BIGINT))"
    if isinstance(n.literal, int):
        _check_length(c, node, n.literal)
        if s.growth * max(1, n.literal) <= MOST_GROWTH:
            return emit(sql, "string", s, n, growth=s.growth * max(1, n.literal))
    too_long = f"strlen({s.sql}) * CAST({n.sql} AS BIGINT) > {MOST_MADE}"
    return emit(_unless(too_long, "repeat", sql), "string", s, n, fails=True, growth=1)


STRINGS = (
    # DuckDB maps one character to one. Of the characters whose other case is several, ß and İ are put right here;
    # still different from Java: the capitals of ligatures (ﬁ), of ŉ, ǰ, և and of Greek letters with an iota or
    # several marks, and the final sigma of a lowered Greek word.
    *entries("upper ucase", 1, 1, _over_strings("upper(replace({0}, 'ß', 'SS'))")),
    *entries("lower lcase", 1, 1, _over_strings("lower(replace({0}, 'İ', 'i̇'))")),
    *entries("trim", 1, 1, _trim("trim", False)),
    *entries("btrim", 1, 2, _trim("trim", False)),
    *entries("ltrim", 1, 2, _trim("ltrim", True)),
    *entries("rtrim", 1, 2, _trim("rtrim", True)),
    *entries("length char_length character_length len", 1, 1, _over_strings("CAST(length({0}) AS INTEGER)", "int")),
    *entries("octet_length", 1, 1, _over_strings("CAST(strlen({0}) AS INTEGER)", "int")),
    *entries("substring substr", 2, 3, _substring),
    *entries("left", 2, 2, _left),
    *entries("right", 2, 2, _right),
    *entries("lpad", 2, 3, _pad("lpad")),
    *entries("rpad", 2, 3, _pad("rpad")),
    *entries("concat", 0, 999, _concat),
    *entries("replace", 2, 3, _replace),
    *entries("repeat", 2, 2, _repeat),
    *entries("reverse", 1, 1, _over_strings("array_to_string(list_reverse(regexp_extract_all({0}, '(?s).')), '')")),
    *entries("startswith", 2, 2, _over_strings("starts_with({0}, {1})", "boolean")),
    *entries("endswith", 2, 2, _over_strings("suffix({0}, {1})", "boolean")),
    *entries("contains", 2, 2, _over_strings("contains({0}, {1})", "boolean")),
    *entries("instr", 2, 2, _over_strings("CAST(instr({0}, {1}) AS INTEGER)", "int")),
    *entries("locate position", 2, 2, _over_strings("CAST(instr({1}, {0}) AS INTEGER)", "int")),
)
