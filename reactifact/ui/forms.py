"""A model's fields as a form: from its JSON schema to elements, and from what a browser sends to data.

A field is a text, a number, a date, a choice, several choices or a checkbox; a model inside a model is a
group of fields. What a form cannot show (a list of models, a map, a union) is a field that takes JSON.
Nothing is validated here: what does not fit is passed on as it was typed, and the model says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from .._html import Html, el, lines

Kind = Literal["text", "date", "number", "whole", "checkbox", "choice", "choices", "json"]
Place: TypeAlias = tuple[str | int, ...]
Sent: TypeAlias = Mapping[str, list[str]]
"""What a browser sent: the values under each name."""

_DEEPEST = 4
"""Models inside models that are shown as fields; below that a field takes JSON."""

_PREFIX = "field"
_UNSET = object()
_LENGTHS = {"minLength": "minlength", "maxLength": "maxlength"}
_BOUNDS = {"minimum": "min", "maximum": "max"}
_DATES = {"date": "date", "time": "time", "email": "email", "uri": "url"}


@dataclass(frozen=True)
class Field:
    """One field of a form, or a group of them where it has `inner` ones."""

    place: Place
    title: str
    kind: Kind
    schema: Mapping[str, Any]
    is_required: bool = True
    may_be_null: bool = False
    inner: tuple[Field, ...] | None = None

    @property
    def name(self) -> str:
        """The name under which a browser sends it: a JSON pointer behind a prefix."""
        parts = (str(part).replace("~", "~0").replace("/", "~1") for part in self.place)
        return "/".join((_PREFIX, *parts))

    @property
    def default(self) -> Any:
        """The value that the field begins with, `None` for none."""
        return self.schema.get("default")

    @property
    def choices(self) -> list[Any]:
        """The values of a choice, or of several."""
        return _choices(self.schema["items"] if self.kind == "choices" else self.schema) or []

    def leaves(self) -> Iterator[Field]:
        """Iterate over the fields that a value is typed into."""
        if self.inner is None:
            yield self
        for field in self.inner or ():
            yield from field.leaves()


def form_of(schema: Mapping[str, Any]) -> Field:
    """Return the form of a model's JSON schema. One that is no object is a single field."""
    defs = schema.get("$defs")
    known = defs if isinstance(defs, Mapping) else {}
    return _field((), "The answer", schema, known, is_required=True, depth=0)


def _field(
    place: Place, name: str, schema: Any, defs: Mapping[str, Any], *, is_required: bool, depth: int
) -> Field:
    found, may_be_null = _plain(schema, defs)
    if "items" in found:
        found["items"] = _plain(found["items"], defs)[0]
    title = str(found.get("title") or name.replace("_", " ").capitalize()) if place else name
    field = Field(place, title, _kind(found), found, is_required, may_be_null)
    inner, begins_with = found.get("properties"), found.get("default")
    if found.get("type") != "object" or not isinstance(inner, Mapping) or depth >= _DEEPEST:
        return field
    if may_be_null or not (is_required or isinstance(begins_with, Mapping)):
        return field
    required = found["required"] if isinstance(found.get("required"), list) else []
    begins: Mapping[str, Any] = begins_with if isinstance(begins_with, Mapping) else {}
    fields = []
    for key, one in inner.items():
        beneath = {**one, "default": begins[key]} if key in begins and isinstance(one, Mapping) else one
        fields.append(_field((*place, key), key, beneath, defs, is_required=key in required, depth=depth + 1))
    return replace(field, inner=tuple(fields))


def _plain(schema: Any, defs: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema with its references followed, without the `null` of an optional; whether it had one.

    A title is the field's own, not that of the type it refers to.
    """
    found: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
    may_be_null = False
    for _ in range(16):  # a reference may lead to a reference, and one to itself
        any_of = found.get("anyOf")
        if isinstance(found.get("$ref"), str):
            beneath = defs.get(found.pop("$ref").rpartition("/")[2])
            beneath = dict(beneath) if isinstance(beneath, Mapping) else {}
            beneath.pop("title", None)
            found = {**beneath, **found}
        elif isinstance(any_of, list) and {"type": "null"} in any_of:
            may_be_null = True
            others = [one for one in any_of if one != {"type": "null"}]
            del found["anyOf"]
            if len(others) == 1 and isinstance(others[0], Mapping):
                found = {**others[0], **found}
            else:
                found["anyOf"] = others
        else:
            break
    return found, may_be_null


def _choices(schema: Any) -> list[Any] | None:
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) and found else None


def _kind(schema: Mapping[str, Any]) -> Kind:
    kinds: dict[Any, Kind] = {"boolean": "checkbox", "integer": "whole", "number": "number", "string": "text"}
    if _choices(schema) is not None:
        return "choice"
    kind = schema.get("type")
    if kind == "array" and _choices(schema.get("items")):
        return "choices"
    any_of = schema.get("anyOf")
    if isinstance(any_of, list) and {_type(one) for one in any_of} == {"number", "string"}:
        return "text"  # a decimal number
    found = kinds.get(_word(kind))
    return "date" if found == "text" and _word(schema.get("format")) in _DATES else found or "json"


def _type(schema: Any) -> str | None:
    return _word(schema.get("type")) if isinstance(schema, Mapping) else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# -- what was sent --------------------------------------------------------------------------------


def answer_of(form: Field, sent: Sent) -> Any:
    """Return the data that a browser sent for a form."""
    found = _value(form, sent)
    return {} if found is _UNSET and form.inner is not None else None if found is _UNSET else found


def _value(field: Field, sent: Sent) -> Any:
    if field.inner is not None:
        values = ((str(one.place[-1]), _value(one, sent)) for one in field.inner)
        return {name: value for name, value in values if value is not _UNSET}
    given = sent.get(field.name, [])
    if field.kind == "choices":
        return [_chosen(field, text) for text in given]
    text = given[-1].replace("\r\n", "\n") if given else ""  # a browser sends lines so
    if field.kind == "checkbox" and not field.may_be_null:
        return bool(text)
    if text == "":
        return _left_empty(field)
    if field.kind in ("choice", "checkbox"):
        return _chosen(field, text)
    return _read(field.kind, text)


def _left_empty(field: Field) -> Any:
    """Return what a field says in which nothing stands."""
    if field.may_be_null:
        return None
    if field.kind == "text" and field.is_required:
        return ""  # a text too
    # where a value stood, its removal is not to bring it back
    return _UNSET if field.default is None else ""


def _chosen(field: Field, text: str) -> Any:
    """Return the value behind the number of a choice; the text itself where there is none."""
    values = [False, True] if field.kind == "checkbox" else field.choices
    return values[int(text)] if text.isascii() and text.isdigit() and int(text) < len(values) else text


def _read(kind: Kind, text: str) -> Any:
    try:
        if kind == "whole":
            return int(text)
        if kind == "number":
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        return json.loads(text) if kind == "json" else text
    except ValueError:
        return text


# -- what is shown --------------------------------------------------------------------------------


def faults_by_field(form: Field, faults: Iterable[tuple[Place, str]]) -> dict[str, list[str]]:
    """Return what is wrong under the name of the field it is about; what is about none, under the form's."""
    names = {field.place: field.name for field in form.leaves()}
    found: dict[str, list[str]] = {}
    for place, text in faults:
        ends = (place[:end] for end in range(len(place), -1, -1))
        nearest: Place = next((one for one in ends if one in names), ())
        rest = ".".join(map(str, place[len(nearest) :]))
        found.setdefault(names.get(nearest, form.name), []).append(f"{rest}: {text}" if rest else text)
    return found


def shown(form: Field, key: str, sent: Sent | None, faults: Mapping[str, list[str]]) -> Html:
    """Return a form's fields. `key` begins their ids; `sent` is what was typed into them before."""
    if form.inner is None:
        return _labelled(form, key, sent, faults)
    fields = [
        shown(one, f"{key}-{number}", sent, faults)
        if one.inner is None
        else el(
            "fieldset", el("legend", one.title), shown(one, f"{key}-{number}", sent, faults), class_="group"
        )
        for number, one in enumerate(form.inner)
    ]
    return el("div", fields or el("p", "There is nothing to fill in.", class_="muted"), class_="form-fields")


def problem(texts: list[str] | None, key: str) -> Html | None:
    """Return what is wrong with a field, to be read together with it."""
    return (
        None if not texts else el("span", "; ".join(texts), id=f"{key}-wrong", class_="bad-text small block")
    )


def _labelled(field: Field, key: str, sent: Sent | None, faults: Mapping[str, list[str]]) -> Html:
    wrong = faults.get(field.name)
    about = field.schema.get("description")
    noted = " ".join([f"{key}-about"] * isinstance(about, str) + [f"{key}-wrong"] * bool(wrong))
    said = [
        el("span", about, id=f"{key}-about", class_="muted small block") if isinstance(about, str) else None,
        problem(wrong, key),
    ]
    common = {"id": key, "aria_describedby": noted or None, "aria_invalid": "true" if wrong else None}
    title = [field.title, "" if field.is_required and not field.may_be_null else " (optional)"]
    if field.kind == "checkbox" and not field.may_be_null:
        is_on = field.default is True if sent is None else bool(sent.get(field.name))
        box = el("input", type="checkbox", name=field.name, value="1", checked=is_on, **common)
        return el("div", el("p", box, el("label", field.title, for_=key)), said, class_="form-field")
    if field.kind == "choices":
        boxes = _boxes(field, key, sent)
        group = el("fieldset", el("legend", title), boxes, aria_describedby=noted or None)
        return el("div", group, said, class_="form-field")
    return el("div", el("label", title, for_=key), _input(field, sent, common), said, class_="form-field")


def _boxes(field: Field, key: str, sent: Sent | None) -> list[Html]:
    default = field.default if isinstance(field.default, list) else []
    boxes = []
    for number, value in enumerate(field.choices):
        is_on = value in default if sent is None else str(number) in sent.get(field.name, [])
        name = f"{key}-{number}"
        box = el("input", type="checkbox", name=field.name, value=number, id=name, checked=is_on)
        boxes.append(el("span", box, el("label", _text(value), for_=name)))
    return boxes


def _input(field: Field, sent: Sent | None, common: Mapping[str, Any]) -> Html:
    if field.kind in ("choice", "checkbox"):
        return _select(field, sent, common)
    default = "" if field.default is None else _text(field.default, is_json=field.kind == "json")
    value = default if sent is None else (sent.get(field.name) or [""])[-1]
    if field.kind == "json":
        return el("textarea", _first_line_kept(value), name=field.name, rows=3, placeholder="JSON", **common)
    if field.kind == "text":
        limits = {to: field.schema[of] for of, to in _LENGTHS.items() if _is_whole(field.schema.get(of))}
        short = _is_whole(field.schema.get("maxLength")) and field.schema["maxLength"] <= 80
        if short or field.schema.get("type") != "string":
            return el("input", type="text", name=field.name, value=value, **limits, **common)
        return el("textarea", _first_line_kept(value), name=field.name, rows=2, **limits, **common)
    if field.kind == "date":
        kind = _DATES[field.schema["format"]]
        return el("input", type=kind, name=field.name, value=value, **common)
    bounds = {to: _text(field.schema[of]) for of, to in _BOUNDS.items() if _is_number(field.schema.get(of))}
    step = "1" if field.kind == "whole" else "any"
    return el("input", type="number", name=field.name, value=value, step=step, **bounds, **common)


def _select(field: Field, sent: Sent | None, common: Mapping[str, Any]) -> Html:
    values: list[Any] = [False, True] if field.kind == "checkbox" else field.choices
    if sent is not None:
        chosen = (sent.get(field.name) or [""])[-1]
    else:
        places = [n for n, value in enumerate(values) if value == field.default and field.default is not None]
        chosen = str(places[0]) if places else ""
    names = ["no", "yes"] if field.kind == "checkbox" else [_text(value) for value in values]
    options = [
        el("option", name, value=number, selected=chosen == str(number)) for number, name in enumerate(names)
    ]
    nothing = el("option", "—", value="", selected=chosen == "")
    return el("select", nothing, options, name=field.name, **common)


def _first_line_kept(text: str) -> Html:
    """Return a text for a `textarea`, which takes away one end of a line at its beginning."""
    return Html("\n" + lines(text))


def _text(value: Any, *, is_json: bool = False) -> str:
    return value if isinstance(value, str) and not is_json else json.dumps(value, ensure_ascii=False)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
