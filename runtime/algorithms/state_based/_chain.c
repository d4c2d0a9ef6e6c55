/* The loop of `chain.py` for handlers whose states are plain, step by step the same.

   Whatever is out of the ordinary, such as a state that does not survive its codec or an input state that was changed,
   is settled by the Python function that the other loop calls for each message, so that only what is plainly right is
   decided here. An error leaves the loop as it is; how far the loop came is noted first. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

#define MAX_FIELDS 64

/* What `Chain._parts` gives, in its order: references are borrowed from that tuple. `longest` is `max_bytes` as a
   number. */
typedef struct {
    PyObject *context_type;
    PyObject *handler, *business_id, *clock, *ways, *draw_key, *room;
    PyObject *state_type, *names, *types, *fields, *max_bytes, *serialize, *reread;
    PyObject *settle, *size_beside_state;
    Py_ssize_t longest;
} Parts;

#define PARTS ((Py_ssize_t)(offsetof(Parts, longest) / sizeof(PyObject *)))

/* The columns of `Rows`, borrowed as well. */
typedef struct {
    PyObject *message_ids, *types, *headers, *messages;
} Columns;

/* A message and how it is handled: references are borrowed from what the caller holds meanwhile. */
typedef struct {
    PyObject *message_id, *type, *headers, *message, *method, *revision;
    Py_ssize_t size;
} Way;

/* The bounds of a run: it ends when its versions take `room` bytes, and before one with a larger part than `most`. */
typedef struct {
    Py_ssize_t room, most;
} Bounds;

/* Where the loop stands; references are its own. */
typedef struct {
    PyObject *state, *before, *last_now;
    PyObject *positions, *nows, *revisions, *captured, *published, *afters;
    Py_ssize_t size;
} Chain;

/* The state that a message is handled on: the values that its fields have before the call, and its encoded bytes.
   References to values are its own, the others are borrowed. */
typedef struct {
    PyObject *state, *before;
    PyObject *values[MAX_FIELDS];
    Py_ssize_t count;
} Input;

/* What one message came to; references are its own. */
typedef struct {
    PyObject *returned, *after, *captured, *published, *documents;
} Link;

typedef struct {
    PyObject *context_keywords, *replay_keywords, *serialize_keywords;
    PyObject *fields_set, *exceeded, *captured, *published, *documents;
    PyObject *state, *before, *last_now, *size, *excess, *is_calling;
} Names;

static Names *names_of(PyObject *module) { return PyModule_GetState(module); }

/* Whether a value is exactly of a type that its field has. No other type's hash is asked for, which may be anything. */
static int is_of(PyObject *value, PyObject *types)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type != &PyUnicode_Type && type != &PyLong_Type && type != &PyFloat_Type && type != &PyBool_Type
        && value != Py_None)
        return 0;
    return PySet_Contains(types, (PyObject *)type);
}

/* Whether a model has the fields of its type in their order, all of them set. With `values` each must be the very one
   that it was; without, each must have exactly a type of its field. -1 stands for an error.

   Only the first comparison may run code of the user's, so that nothing is changed once the fields are looked at. */
static int is_plain(const Names *names, const Parts *parts, PyObject *model, PyObject *const *values)
{
    PyObject *set = PyObject_GetAttr(model, names->fields_set);
    if (set == NULL)
        return -1;
    int found = PyAnySet_CheckExact(set) ? PyObject_RichCompareBool(set, parts->fields, Py_EQ) : 0;
    Py_DECREF(set);
    if (found <= 0)
        return found;
    PyObject *fields = PyObject_GenericGetDict(model, NULL), *name, *value;
    if (fields == NULL)
        return -1;
    Py_ssize_t index = 0, at = 0;
    found = PyDict_CheckExact(fields) && PyDict_GET_SIZE(fields) == PyTuple_GET_SIZE(parts->names);
    while (found > 0 && PyDict_Next(fields, &at, &name, &value)) {
        PyObject *expected = PyTuple_GET_ITEM(parts->names, index);
        if (name != expected)
            found = PyUnicode_CheckExact(name) ? PyObject_RichCompareBool(name, expected, Py_EQ) : 0;
        if (found > 0)
            found = values != NULL ? value == values[index] : is_of(value, PyTuple_GET_ITEM(parts->types, index));
        index++;
    }
    Py_DECREF(fields);
    return found;
}

/* Take the values that the fields of the input state have, to compare them after the call: 0, or -1 for an error. What
   is beyond those of a plain state is left out. */
static int take_values(Input *input)
{
    PyObject *fields = PyObject_GenericGetDict(input->state, NULL), *name, *value;
    if (fields == NULL)
        return -1;
    Py_ssize_t at = 0;
    int result = 0;
    if (PyDict_CheckExact(fields)) {
        while (input->count < MAX_FIELDS && PyDict_Next(fields, &at, &name, &value))
            input->values[input->count++] = Py_NewRef(value);
    }
    else {
        PyObject *list = PyMapping_Values(fields); /* which asks a dict with methods of its own */
        for (; list != NULL && input->count < Py_MIN(MAX_FIELDS, PyList_GET_SIZE(list)); input->count++)
            input->values[input->count] = Py_NewRef(PyList_GET_ITEM(list, input->count));
        result = list == NULL ? -1 : 0;
        Py_XDECREF(list);
    }
    Py_DECREF(fields);
    return result;
}

/* Encode what a handler returned, if it is plainly what it should be: 1 with the bytes in `after`, else 0, or -1. */
static int encode(const Names *names, const Parts *parts, const Input *input, Link *link)
{
    if ((PyObject *)Py_TYPE(link->returned) != parts->state_type || input->count != PyTuple_GET_SIZE(parts->names))
        return 0;
    int plain = is_plain(names, parts, input->state, input->values);
    if (plain <= 0)
        return plain;
    if (link->returned == input->state) {
        link->after = Py_NewRef(input->before);
        return 1;
    }
    plain = is_plain(names, parts, link->returned, NULL);
    if (plain <= 0)
        return plain;
    PyObject *given[] = {link->returned, Py_True, Py_False};
    link->after = PyObject_Vectorcall(parts->serialize, given, 1, names->serialize_keywords);
    if (link->after == NULL)
        return -1;
    if (PyBytes_Check(link->after) && PyBytes_GET_SIZE(link->after) <= parts->longest)
        return 1;
    Py_CLEAR(link->after);
    return 0;
}

/* Have what a handler did settled by Python. */
static int settle(const Parts *parts, const Input *input, PyObject *method, PyObject *context, Link *link)
{
    PyObject *list = PyList_New(input->count);
    if (list == NULL)
        return -1;
    for (Py_ssize_t index = 0; index < input->count; index++)
        PyList_SET_ITEM(list, index, Py_NewRef(input->values[index]));
    PyObject *given[] = {method, input->state, list, input->before, link->returned, context};
    PyObject *settled = PyObject_Vectorcall(parts->settle, given, 6, NULL);
    Py_DECREF(list);
    if (settled == NULL)
        return -1;
    PyObject *returned, *after;
    int parsed = PyArg_ParseTuple(settled, "OO!", &returned, &PyBytes_Type, &after);
    if (parsed) {
        Py_SETREF(link->returned, Py_NewRef(returned));
        Py_XSETREF(link->after, Py_NewRef(after));
    }
    Py_DECREF(settled);
    return parsed ? 0 : -1;
}

/* Look at what a method did once it has returned something: 0, or -1 for an error, which is the user's. */
static int look(const Names *names, const Parts *parts, const Input *input, PyObject *method, PyObject *context,
                Link *link)
{
    PyObject *exceeded = PyObject_GetAttr(context, names->exceeded);
    if (exceeded == NULL)
        return -1;
    int result = exceeded == Py_None ? encode(names, parts, input, link) : 0;
    Py_DECREF(exceeded);
    if (result < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear(); /* what is wrong is told by who settles it */
        result = 0;
    }
    if (result == 0)
        result = settle(parts, input, method, context, link);
    if (result >= 0)
        link->published = PyObject_GetAttr(context, names->published);
    return link->published == NULL ? -1 : 0;
}

/* Call a method for a message, and look at what it did. `is_calling` says whether an error is the user's. */
static int call(const Names *names, const Parts *parts, PyObject *state, PyObject *before, PyObject *method,
                PyObject *message, PyObject *context, Link *link, int *is_calling)
{
    Input input;
    input.state = state;
    input.before = before;
    input.count = 0;
    int result = take_values(&input);
    if (result == 0) {
        PyObject *given[] = {state, message, context};
        link->returned = PyObject_Vectorcall(method, given, 3, NULL);
        result = link->returned == NULL ? -1 : look(names, parts, &input, method, context, link);
        *is_calling = result < 0;
    }
    while (input.count > 0)
        Py_DECREF(input.values[--input.count]);
    return result;
}

/* Return how many bytes a version takes beside its state, -1 for an error. */
static Py_ssize_t size_beside(const Parts *parts, const Way *way, PyObject *captured)
{
    int is_more = PyObject_IsTrue(way->headers);
    if (is_more == 0)
        is_more = PyObject_IsTrue(captured);
    if (is_more <= 0)
        return is_more < 0 ? -1 : way->size;
    PyObject *given[] = {way->type, way->headers, captured};
    PyObject *size = PyObject_Vectorcall(parts->size_beside_state, given, 3, NULL);
    if (size == NULL)
        return -1;
    Py_ssize_t found = PyLong_AsSsize_t(size);
    Py_DECREF(size);
    return found;
}

/* Note the version that a message made. */
static int note(Chain *chain, Py_ssize_t position, PyObject *now, PyObject *revision, Py_ssize_t beside,
                const Link *link)
{
    int is_captured = PyObject_IsTrue(link->captured);
    int is_same = is_captured < 0 ? -1 : PyObject_RichCompareBool(link->after, chain->before, Py_EQ);
    PyObject *at = is_same < 0 ? NULL : PyLong_FromSsize_t(position);
    int failed = at == NULL || PyList_Append(chain->positions, at) || PyList_Append(chain->nows, now)
                 || PyList_Append(chain->revisions, revision)
                 || PyList_Append(chain->captured, is_captured ? link->captured : Py_None)
                 || PyList_Append(chain->published, link->published) || PyList_Append(chain->afters, link->after);
    Py_XDECREF(at);
    if (failed)
        return -1;
    chain->size += is_same ? beside : beside + PyBytes_GET_SIZE(link->after);
    Py_SETREF(chain->last_now, Py_NewRef(now));
    return 0;
}

/* Go on from the state that a message left. */
static void follow(Chain *chain, const Link *link)
{
    Py_XSETREF(chain->state, Py_NewRef(link->returned));
    Py_XSETREF(chain->before, Py_NewRef(link->after));
}

static void forget(Link *link)
{
    Py_XDECREF(link->returned);
    Py_XDECREF(link->after);
    Py_XDECREF(link->captured);
    Py_XDECREF(link->published);
    Py_XDECREF(link->documents);
}

/* Return what the clock says, or when the newest version was made, if that is later. */
static PyObject *time_of(const Parts *parts, const Chain *chain)
{
    PyObject *now = PyObject_CallNoArgs(parts->clock);
    int is_earlier = now == NULL ? -1 : PyObject_RichCompareBool(chain->last_now, now, Py_GT);
    if (is_earlier > 0)
        Py_SETREF(now, Py_NewRef(chain->last_now));
    if (is_earlier < 0)
        Py_CLEAR(now);
    return now;
}

/* Keep the version that a call made: 1 to go on, 0 when the run ends, -1 for an error. */
static int keep(const Names *names, const Parts *parts, const Way *way, const Bounds *bounds, Chain *chain,
                Py_ssize_t position, PyObject *now, const Link *link, PyObject *progress)
{
    Py_ssize_t beside = size_beside(parts, way, link->captured);
    if (beside < 0)
        return -1;
    Py_ssize_t largest = Py_MAX(beside, PyBytes_GET_SIZE(link->after));
    if (largest > bounds->most) {
        PyObject *excess = PyLong_FromSsize_t(largest);
        int failed = excess == NULL || PyObject_SetAttr(progress, names->excess, excess);
        Py_XDECREF(excess);
        return failed ? -1 : 0;
    }
    if (note(chain, position, now, way->revision, beside, link))
        return -1;
    follow(chain, link);
    int is_last = PyObject_IsTrue(link->documents);
    if (is_last < 0 || (!is_last && chain->size < bounds->room))
        return is_last < 0 ? -1 : 1;
    return PyObject_SetAttr(progress, names->documents, link->documents) ? -1 : 0;
}

/* Handle a message: 1 to go on, 0 when the run ends, -1 for an error. */
static int handle_message(const Names *names, const Parts *parts, const Way *way, const Bounds *bounds, Chain *chain,
                          Py_ssize_t position, PyObject *progress, int *is_calling)
{
    PyObject *now = time_of(parts, chain);
    if (now == NULL)
        return -1;
    PyObject *given[] = {parts->handler, parts->business_id, way->message_id, now, way->headers,
                         parts->draw_key, parts->room};
    PyObject *context = PyObject_Vectorcall(parts->context_type, given, 5, names->context_keywords);
    Link link = {0};
    int result = context == NULL ? -1
                                 : call(names, parts, chain->state, chain->before, way->method, way->message, context,
                                        &link, is_calling);
    if (result == 0 && (link.captured = PyObject_GetAttr(context, names->captured)) != NULL)
        link.documents = PyObject_GetAttr(context, names->documents);
    if (result == 0 && link.documents == NULL) {
        *is_calling = 1; /* as it was the handler that has deleted them */
        result = -1;
    }
    if (result == 0)
        result = keep(names, parts, way, bounds, chain, position, now, &link, progress);
    forget(&link);
    Py_XDECREF(context);
    Py_DECREF(now);
    return result;
}

/* Take the cell of a column at a position, NULL for an error. */
static PyObject *cell(PyObject *column, Py_ssize_t position)
{
    PyObject *found = PyList_GetItem(column, position);
    return Py_XNewRef(found);
}

/* Handle the message at a position, as `handle_message` does; what it needs is held meanwhile. */
static int handle_one(const Names *names, const Parts *parts, const Columns *columns, const Bounds *bounds,
                      Chain *chain, Py_ssize_t position, PyObject *progress, int *is_calling)
{
    Way way = {0};
    PyObject *found = NULL;
    int result = -1;
    if ((way.message_id = cell(columns->message_ids, position)) != NULL
        && (way.type = cell(columns->types, position)) != NULL
        && (way.headers = cell(columns->headers, position)) != NULL
        && (way.message = cell(columns->messages, position)) != NULL) {
        found = Py_XNewRef(PyDict_GetItemWithError(parts->ways, way.type));
        if (found == NULL && !PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, way.type);
        if (found != NULL && PyArg_ParseTuple(found, "OOn", &way.method, &way.revision, &way.size))
            result = handle_message(names, parts, &way, bounds, chain, position, progress, is_calling);
    }
    Py_XDECREF(found);
    Py_XDECREF(way.message_id);
    Py_XDECREF(way.type);
    Py_XDECREF(way.headers);
    Py_XDECREF(way.message);
    return result;
}

/* Replay a message on the state before its version, encoded in `before`: 0, or -1 for an error. */
static int replay_on(const Names *names, const Parts *parts, PyObject *state, PyObject *before, Chain *chain,
                     const Way *way, PyObject *now, PyObject *captured, int *is_calling)
{
    PyObject *recorded = captured == Py_None ? PyDict_New() : Py_NewRef(captured);
    PyObject *given[] = {parts->handler, parts->business_id, way->message_id, now, way->headers,
                         recorded, parts->draw_key};
    PyObject *context =
        recorded == NULL ? NULL : PyObject_Vectorcall(parts->context_type, given, 5, names->replay_keywords);
    Link link = {0};
    int result = context == NULL
                     ? -1
                     : call(names, parts, state, before, way->method, way->message, context, &link, is_calling);
    if (result == 0) {
        follow(chain, &link);
        if (PyList_Append(chain->afters, link.after) || PyList_Append(chain->published, link.published))
            result = -1;
    }
    forget(&link);
    Py_XDECREF(context);
    Py_XDECREF(recorded);
    return result;
}

/* Replay a message as `replay_on` does, on the state that the one before left, if it was that one. */
static int replay_one(const Names *names, const Parts *parts, Chain *chain, PyObject *known, int *is_calling)
{
    Way way = {0};
    PyObject *now, *captured, *before;
    if (!PyArg_ParseTuple(known, "OOOOOOS", &way.message_id, &way.method, &way.message, &now, &way.headers, &captured,
                          &before))
        return -1;
    int is_next = chain->state == Py_None ? 0 : PyObject_RichCompareBool(chain->before, before, Py_EQ);
    if (is_next < 0)
        return -1;
    PyObject *state = is_next ? Py_NewRef(chain->state) : PyObject_CallOneArg(parts->reread, before);
    if (state == NULL)
        return -1;
    int result = replay_on(names, parts, state, before, chain, &way, now, captured, is_calling);
    Py_DECREF(state);
    return result;
}

/* Say in a `Progress` or in `Replays` how far the loop came, whether or not it ends with an error. */
static int tell(const Names *names, PyObject *told, const Chain *chain, int is_calling)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    int failed = PyObject_SetAttr(told, names->state, chain->state) || PyObject_SetAttr(told, names->before, chain->before)
                 || PyObject_SetAttr(told, names->is_calling, is_calling ? Py_True : Py_False);
    if (!failed && chain->last_now != NULL) {
        PyObject *size = PyLong_FromSsize_t(chain->size);
        failed = size == NULL || PyObject_SetAttr(told, names->size, size)
                 || PyObject_SetAttr(told, names->last_now, chain->last_now);
        Py_XDECREF(size);
    }
    if (type != NULL)
        PyErr_Restore(type, error, trace);
    return failed || type != NULL ? -1 : 0;
}

/* Take what `Chain._parts` gave. */
static int take_parts(PyObject *tuple, Parts *parts)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != PARTS) {
        PyErr_Format(PyExc_TypeError, "expected %zd parts", PARTS);
        return 0;
    }
    for (Py_ssize_t index = 0; index < PARTS; index++)
        ((PyObject **)parts)[index] = PyTuple_GET_ITEM(tuple, index);
    if (!PyTuple_Check(parts->names) || !PyTuple_Check(parts->types) || !PyDict_Check(parts->ways)
        || PyTuple_GET_SIZE(parts->names) > MAX_FIELDS
        || PyTuple_GET_SIZE(parts->names) != PyTuple_GET_SIZE(parts->types)) {
        PyErr_Format(PyExc_TypeError, "expected names and types of up to %d fields, and ways", MAX_FIELDS);
        return 0;
    }
    parts->longest = parts->max_bytes == Py_None ? PY_SSIZE_T_MAX : PyLong_AsSsize_t(parts->max_bytes);
    return parts->longest != -1 || !PyErr_Occurred();
}

/* Take an attribute: 0, or -1 when there is none. */
static int take(PyObject *of, const char *name, PyObject **taken)
{
    *taken = PyObject_GetAttrString(of, name);
    return *taken == NULL ? -1 : 0;
}

/* Take an attribute that is a list, or bytes. */
static int take_a(PyTypeObject *type, PyObject *of, const char *name, PyObject **taken)
{
    if (take(of, name, taken))
        return -1;
    if (PyObject_TypeCheck(*taken, type))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s is no %s", name, type->tp_name);
    return -1;
}

/* Take an attribute that is a size. */
static int take_size(PyObject *of, const char *name, Py_ssize_t *taken)
{
    PyObject *size;
    if (take(of, name, &size))
        return -1;
    *taken = PyLong_AsSsize_t(size);
    Py_DECREF(size);
    return *taken == -1 && PyErr_Occurred() ? -1 : 0;
}

static void leave(Chain *chain)
{
    PyObject *all[] = {chain->state, chain->before, chain->last_now, chain->positions, chain->nows,
                       chain->revisions, chain->captured, chain->published, chain->afters};
    for (size_t index = 0; index < sizeof(all) / sizeof(all[0]); index++)
        Py_XDECREF(all[index]);
}

static PyObject *handle(PyObject *module, PyObject *args)
{
    PyObject *tuple, *progress, *made = NULL;
    Py_ssize_t first, end;
    Columns columns;
    Bounds bounds;
    Parts parts;
    if (!PyArg_ParseTuple(args, "OO(O!O!O!O!nn)nn", &tuple, &progress, &PyList_Type, &columns.message_ids,
                          &PyList_Type, &columns.types, &PyList_Type, &columns.headers, &PyList_Type,
                          &columns.messages, &first, &end, &bounds.room, &bounds.most)
        || !take_parts(tuple, &parts))
        return NULL;
    const Names *names = names_of(module);
    Chain chain = {0};
    int is_calling = 0, result = -1;
    if (!take(progress, "state", &chain.state) && !take_a(&PyBytes_Type, progress, "before", &chain.before)
        && !take(progress, "last_now", &chain.last_now) && !take_size(progress, "size", &chain.size)
        && !take(progress, "made", &made) && !take_a(&PyList_Type, made, "positions", &chain.positions)
        && !take_a(&PyList_Type, made, "nows", &chain.nows)
        && !take_a(&PyList_Type, made, "revisions", &chain.revisions)
        && !take_a(&PyList_Type, made, "captured", &chain.captured)
        && !take_a(&PyList_Type, made, "published", &chain.published)
        && !take_a(&PyList_Type, progress, "afters", &chain.afters)) {
        result = 1;
        for (Py_ssize_t position = first; result > 0 && position < end; position++)
            result = handle_one(names, &parts, &columns, &bounds, &chain, position, progress, &is_calling);
        result = tell(names, progress, &chain, is_calling);
    }
    Py_XDECREF(made);
    leave(&chain);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *replay(PyObject *module, PyObject *args)
{
    PyObject *tuple, *replays, *known;
    Parts parts;
    if (!PyArg_ParseTuple(args, "OOO!", &tuple, &replays, &PyList_Type, &known) || !take_parts(tuple, &parts))
        return NULL;
    const Names *names = names_of(module);
    Chain chain = {0};
    int is_calling = 0, result = -1;
    if (!take(replays, "state", &chain.state) && !take(replays, "before", &chain.before)
        && !take_a(&PyList_Type, replays, "published", &chain.published)
        && !take_a(&PyList_Type, replays, "afters", &chain.afters)) {
        result = 0;
        for (Py_ssize_t index = 0; result == 0 && index < PyList_GET_SIZE(known); index++) {
            PyObject *each = Py_NewRef(PyList_GET_ITEM(known, index));
            result = replay_one(names, &parts, &chain, each, &is_calling);
            Py_DECREF(each);
        }
        result = tell(names, replays, &chain, is_calling);
    }
    leave(&chain);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

static int prepare(PyObject *module)
{
    Names *names = names_of(module);
    names->context_keywords = Py_BuildValue("(ss)", "draw_key", "room");
    names->replay_keywords = Py_BuildValue("(ss)", "recorded", "draw_key");
    names->serialize_keywords = Py_BuildValue("(ss)", "by_alias", "warnings");
    names->fields_set = PyUnicode_InternFromString("__pydantic_fields_set__");
    names->exceeded = PyUnicode_InternFromString("exceeded");
    names->captured = PyUnicode_InternFromString("captured");
    names->published = PyUnicode_InternFromString("published");
    names->documents = PyUnicode_InternFromString("documents");
    names->state = PyUnicode_InternFromString("state");
    names->before = PyUnicode_InternFromString("before");
    names->last_now = PyUnicode_InternFromString("last_now");
    names->size = PyUnicode_InternFromString("size");
    names->excess = PyUnicode_InternFromString("excess");
    names->is_calling = PyUnicode_InternFromString("is_calling");
    return PyErr_Occurred() ? -1 : PyModule_AddIntMacro(module, MAX_FIELDS);
}

/* There is nothing to traverse or clear before: no name leads back to the module. */
static void release(void *module)
{
    Names *names = names_of(module);
    for (size_t index = 0; names != NULL && index < sizeof(Names) / sizeof(PyObject *); index++)
        Py_CLEAR(((PyObject **)names)[index]);
}

static PyMethodDef methods[] = {
    {"handle", handle, METH_VARARGS, "Handle messages as `Chain.handle` does."},
    {"replay", replay, METH_VARARGS, "Replay messages as `Chain.replay` does."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_chain",
    .m_size = sizeof(Names),
    .m_methods = methods,
    .m_slots = slots,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__chain(void) { return PyModuleDef_Init(&definition); }
