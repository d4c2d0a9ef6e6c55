/* The loop of `chain.py` for handlers whose states are plain, step by step the same.

   Whatever is out of the ordinary, such as a state that does not survive its codec or an input state that was changed,
   is settled by the Python function that the other loop calls for each message, so that only what is plainly right is
   decided here. An error leaves the loop as it is; how far the loop came is noted first. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define MAX_FIELDS 64

/* What `Chain._parts` gives, in its order: references are borrowed from that tuple. */
typedef struct {
    PyObject *context_type;
    PyObject *handler, *business_id, *clock, *ways, *draw_key, *room;
    PyObject *state_type, *names, *types, *fields, *max_bytes, *serialize, *reread;
    PyObject *settle, *size_beside_state;
} Parts;

#define PARTS ((Py_ssize_t)(sizeof(Parts) / sizeof(PyObject *)))

/* The columns of `Rows`, borrowed as well. */
typedef struct {
    PyObject *message_ids, *types, *headers, *messages;
} Columns;

/* How a message is handled, borrowed too; a run ends when its versions take `room` bytes. */
typedef struct {
    PyObject *type, *headers, *method, *revision;
    Py_ssize_t size, room, max_state;
} Way;

/* Where the loop stands; references are its own. */
typedef struct {
    PyObject *state, *before, *last_now;
    PyObject *positions, *nows, *revisions, *captured, *published, *afters;
    Py_ssize_t size;
} Chain;

/* What one message came to; references are its own. */
typedef struct {
    PyObject *returned, *after, *published;
} Link;

typedef struct {
    PyObject *context_keywords, *replay_keywords, *serialize_keywords;
    PyObject *fields_set, *exceeded, *captured, *published, *documents;
    PyObject *state, *before, *last_now, *size, *excess, *is_calling;
} Names;

static Names *names_of(PyObject *module) { return PyModule_GetState(module); }

/* Whether a model has the fields of its type in their order, all of them set. With `values` each must be the very one
   that it was; without, each must have exactly a type of its field. -1 stands for an error. */
static int is_plain(const Names *names, const Parts *parts, PyObject *model, PyObject **values)
{
    Py_ssize_t count = PyTuple_GET_SIZE(parts->names), index = 0, at = 0;
    PyObject *fields = PyObject_GenericGetDict(model, NULL), *name, *value;
    if (fields == NULL)
        return -1;
    int found = PyDict_GET_SIZE(fields) == count;
    while (found > 0 && PyDict_Next(fields, &at, &name, &value)) {
        PyObject *expected = PyTuple_GET_ITEM(parts->names, index);
        found = name == expected ? 1 : PyObject_RichCompareBool(name, expected, Py_EQ);
        if (found > 0)
            found = values != NULL
                        ? value == values[index]
                        : PySet_Contains(PyTuple_GET_ITEM(parts->types, index), (PyObject *)Py_TYPE(value));
        index++;
    }
    Py_DECREF(fields);
    if (found <= 0)
        return found;
    PyObject *set = PyObject_GetAttr(model, names->fields_set);
    if (set == NULL)
        return -1;
    found = PyObject_RichCompareBool(set, parts->fields, Py_EQ);
    Py_DECREF(set);
    return found;
}

/* Take the values that the fields of a state have, to compare them after the call: how many there are, -1 for an error. */
static Py_ssize_t take_values(PyObject *state, PyObject **values)
{
    PyObject *fields = PyObject_GenericGetDict(state, NULL), *name, *value;
    if (fields == NULL)
        return -1;
    Py_ssize_t count = 0, at = 0;
    while (count < MAX_FIELDS && PyDict_Next(fields, &at, &name, &value))
        values[count++] = Py_NewRef(value);
    Py_DECREF(fields);
    return count;
}

/* Encode what a handler returned, if it is plainly what it should be: 1 with the bytes in `after`, else 0, or -1. */
static int encode(const Names *names, const Parts *parts, const Chain *chain, PyObject *returned, PyObject **values,
                  PyObject **after)
{
    if ((PyObject *)Py_TYPE(returned) != parts->state_type)
        return 0;
    int plain = is_plain(names, parts, chain->state, values);
    if (plain <= 0)
        return plain;
    if (returned == chain->state) {
        *after = Py_NewRef(chain->before);
        return 1;
    }
    plain = is_plain(names, parts, returned, NULL);
    if (plain <= 0)
        return plain;
    PyObject *given[] = {returned, Py_True, Py_False};
    *after = PyObject_Vectorcall(parts->serialize, given, 1, names->serialize_keywords);
    if (*after == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return -1;
        PyErr_Clear(); /* what is wrong is told by who settles it */
        return 0;
    }
    if (PyBytes_Check(*after)
        && (parts->max_bytes == Py_None || PyBytes_GET_SIZE(*after) <= PyLong_AsSsize_t(parts->max_bytes)))
        return 1;
    Py_CLEAR(*after);
    return 0;
}

/* Have what a handler did settled by Python. */
static int settle(const Parts *parts, const Chain *chain, PyObject *method, PyObject **values, Py_ssize_t count,
                  PyObject *context, Link *link)
{
    PyObject *list = PyList_New(count);
    if (list == NULL)
        return -1;
    for (Py_ssize_t index = 0; index < count; index++)
        PyList_SET_ITEM(list, index, Py_NewRef(values[index]));
    PyObject *given[] = {method, chain->state, list, chain->before, link->returned, context};
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

/* Call a method for a message, and look at what it did. `is_calling` says whether an error is the user's. */
static int call(const Names *names, const Parts *parts, const Chain *chain, PyObject *method, PyObject *message,
                PyObject *context, Link *link, int *is_calling)
{
    PyObject *values[MAX_FIELDS], *exceeded = NULL;
    Py_ssize_t count = take_values(chain->state, values);
    if (count < 0)
        return -1;
    *is_calling = 1;
    PyObject *given[] = {chain->state, message, context};
    link->returned = PyObject_Vectorcall(method, given, 3, NULL);
    if (link->returned != NULL)
        exceeded = PyObject_GetAttr(context, names->exceeded);
    int result = exceeded == NULL ? -1 : 0;
    if (exceeded == Py_None)
        result = encode(names, parts, chain, link->returned, values, &link->after);
    if (result == 0)
        result = settle(parts, chain, method, values, count, context, link);
    if (result >= 0) {
        link->published = PyObject_GetAttr(context, names->published);
        result = link->published == NULL ? -1 : 0;
    }
    *is_calling = result < 0;
    Py_XDECREF(exceeded);
    while (count > 0)
        Py_DECREF(values[--count]);
    return result;
}

/* Return how many bytes a version takes beside its state, -1 for an error. */
static Py_ssize_t size_beside(const Parts *parts, const Way *way, PyObject *captured)
{
    int has_headers = PyObject_IsTrue(way->headers), has_captured = PyObject_IsTrue(captured);
    if (has_headers < 0 || has_captured < 0)
        return -1;
    if (!has_headers && !has_captured)
        return way->size;
    PyObject *given[] = {way->type, way->headers, captured};
    PyObject *size = PyObject_Vectorcall(parts->size_beside_state, given, 3, NULL);
    if (size == NULL)
        return -1;
    Py_ssize_t found = PyLong_AsSsize_t(size);
    Py_DECREF(size);
    return found;
}

/* Note the version that a message made, and go on from there. */
static int note(Chain *chain, Py_ssize_t position, PyObject *now, PyObject *revision, PyObject *captured,
                Py_ssize_t beside, const Link *link)
{
    int is_captured = PyObject_IsTrue(captured);
    int is_same = PyObject_RichCompareBool(link->after, chain->before, Py_EQ);
    if (is_captured < 0 || is_same < 0)
        return -1;
    PyObject *at = PyLong_FromSsize_t(position);
    int failed = at == NULL || PyList_Append(chain->positions, at) || PyList_Append(chain->nows, now)
                 || PyList_Append(chain->revisions, revision)
                 || PyList_Append(chain->captured, is_captured ? captured : Py_None)
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
    Py_XDECREF(link->published);
}

/* Return what the clock says, or when the newest version was made, if that is later. */
static PyObject *time_of(const Parts *parts, const Chain *chain)
{
    PyObject *now = PyObject_CallNoArgs(parts->clock);
    int is_earlier = now == NULL ? -1 : PyObject_RichCompareBool(now, chain->last_now, Py_LT);
    if (is_earlier > 0)
        Py_SETREF(now, Py_NewRef(chain->last_now));
    if (is_earlier < 0)
        Py_CLEAR(now);
    return now;
}

/* Keep the version that a call made: 1 to go on, 0 when the run ends, -1 for an error. */
static int keep(const Names *names, const Parts *parts, const Way *way, Chain *chain, Py_ssize_t position,
                PyObject *now, PyObject *context, const Link *link, PyObject *progress)
{
    PyObject *captured = PyObject_GetAttr(context, names->captured);
    PyObject *documents = PyObject_GetAttr(context, names->documents);
    int result = -1, is_documented = documents == NULL ? -1 : PyObject_IsTrue(documents);
    Py_ssize_t beside = captured == NULL ? -1 : size_beside(parts, way, captured);
    if (is_documented >= 0 && beside >= 0) {
        Py_ssize_t largest = Py_MAX(beside, PyBytes_GET_SIZE(link->after));
        if (largest > way->max_state) {
            PyObject *excess = PyLong_FromSsize_t(largest);
            result = excess == NULL || PyObject_SetAttr(progress, names->excess, excess) ? -1 : 0;
            Py_XDECREF(excess);
        }
        else if (note(chain, position, now, way->revision, captured, beside, link) == 0) {
            follow(chain, link);
            result = is_documented ? PyObject_SetAttr(progress, names->documents, documents) : chain->size < way->room;
        }
    }
    Py_XDECREF(captured);
    Py_XDECREF(documents);
    return result;
}

/* Handle the message at a position: 1 to go on, 0 when the run ends, -1 for an error. */
static int handle_one(const Names *names, const Parts *parts, const Columns *columns, Chain *chain,
                      Py_ssize_t position, Py_ssize_t room, Py_ssize_t max_state, PyObject *progress, int *is_calling)
{
    Way way = {.room = room, .max_state = max_state};
    PyObject *message_id = PyList_GetItem(columns->message_ids, position);
    PyObject *message = PyList_GetItem(columns->messages, position);
    way.type = PyList_GetItem(columns->types, position);
    way.headers = PyList_GetItem(columns->headers, position);
    if (message_id == NULL || message == NULL || way.type == NULL || way.headers == NULL)
        return -1;
    PyObject *found = PyDict_GetItemWithError(parts->ways, way.type);
    if (found == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, way.type);
        return -1;
    }
    if (!PyArg_ParseTuple(found, "OOn", &way.method, &way.revision, &way.size))
        return -1;
    PyObject *now = time_of(parts, chain);
    if (now == NULL)
        return -1;
    PyObject *given[] = {parts->handler, parts->business_id, message_id, now, way.headers,
                         parts->draw_key, parts->room};
    PyObject *context = PyObject_Vectorcall(parts->context_type, given, 5, names->context_keywords);
    Link link = {0};
    int result = context == NULL ? -1 : call(names, parts, chain, way.method, message, context, &link, is_calling);
    if (result == 0)
        result = keep(names, parts, &way, chain, position, now, context, &link, progress);
    forget(&link);
    Py_XDECREF(context);
    Py_DECREF(now);
    return result;
}

/* Replay a message on the state before its version: 0, or -1 for an error. */
static int replay_one(const Names *names, const Parts *parts, Chain *chain, PyObject *known, int *is_calling)
{
    PyObject *message_id, *method, *message, *now, *headers, *captured, *before;
    if (!PyArg_ParseTuple(known, "OOOOOOS", &message_id, &method, &message, &now, &headers, &captured, &before))
        return -1;
    int is_next = chain->state == Py_None ? 0 : PyObject_RichCompareBool(chain->before, before, Py_EQ);
    if (is_next < 0)
        return -1;
    if (!is_next) {
        Link read = {.returned = PyObject_CallOneArg(parts->reread, before), .after = before};
        if (read.returned == NULL)
            return -1;
        follow(chain, &read);
        Py_DECREF(read.returned);
    }
    PyObject *recorded = captured == Py_None ? PyDict_New() : Py_NewRef(captured);
    PyObject *given[] = {parts->handler, parts->business_id, message_id, now, headers, recorded, parts->draw_key};
    PyObject *context =
        recorded == NULL ? NULL : PyObject_Vectorcall(parts->context_type, given, 5, names->replay_keywords);
    Link link = {0};
    int result = context == NULL ? -1 : call(names, parts, chain, method, message, context, &link, is_calling);
    if (result == 0 && (PyList_Append(chain->afters, link.after) || PyList_Append(chain->published, link.published)))
        result = -1;
    if (result == 0)
        follow(chain, &link);
    forget(&link);
    Py_XDECREF(context);
    Py_XDECREF(recorded);
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
    if (PyTuple_Check(parts->names) && PyTuple_Check(parts->types) && PyDict_Check(parts->ways)
        && PyTuple_GET_SIZE(parts->names) <= MAX_FIELDS
        && PyTuple_GET_SIZE(parts->names) == PyTuple_GET_SIZE(parts->types))
        return 1;
    PyErr_Format(PyExc_TypeError, "expected names and types of up to %d fields, and ways", MAX_FIELDS);
    return 0;
}

/* Take an attribute: 0, or -1 when there is none. */
static int take(PyObject *of, const char *name, PyObject **taken)
{
    *taken = PyObject_GetAttrString(of, name);
    return *taken == NULL ? -1 : 0;
}

/* Take an attribute that is a list. */
static int take_list(PyObject *of, const char *name, PyObject **taken)
{
    if (take(of, name, taken))
        return -1;
    if (PyList_Check(*taken))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s is no list", name);
    return -1;
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
    Py_ssize_t room, max_state, first, end;
    Columns columns;
    Parts parts;
    if (!PyArg_ParseTuple(args, "OO(O!O!O!O!nn)nn", &tuple, &progress, &PyList_Type, &columns.message_ids,
                          &PyList_Type, &columns.types, &PyList_Type, &columns.headers, &PyList_Type,
                          &columns.messages, &first, &end, &room, &max_state)
        || !take_parts(tuple, &parts))
        return NULL;
    const Names *names = names_of(module);
    Chain chain = {0};
    int is_calling = 0, result = -1;
    if (!take(progress, "state", &chain.state) && !take(progress, "before", &chain.before)
        && !take(progress, "last_now", &chain.last_now) && !take(progress, "made", &made)
        && !take_list(made, "positions", &chain.positions) && !take_list(made, "nows", &chain.nows)
        && !take_list(made, "revisions", &chain.revisions) && !take_list(made, "captured", &chain.captured)
        && !take_list(made, "published", &chain.published) && !take_list(progress, "afters", &chain.afters)) {
        result = 1;
        for (Py_ssize_t position = first; result > 0 && position < end; position++)
            result = handle_one(names, &parts, &columns, &chain, position, room, max_state, progress, &is_calling);
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
        && !take_list(replays, "published", &chain.published) && !take_list(replays, "afters", &chain.afters)) {
        result = 0;
        for (Py_ssize_t index = 0; result == 0 && index < PyList_GET_SIZE(known); index++)
            result = replay_one(names, &parts, &chain, PyList_GET_ITEM(known, index), &is_calling);
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

static int clear(PyObject *module)
{
    Names *names = names_of(module);
    for (size_t index = 0; names != NULL && index < sizeof(Names) / sizeof(PyObject *); index++)
        Py_CLEAR(((PyObject **)names)[index]);
    return 0;
}

static void release(void *module) { clear(module); }

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
    .m_clear = clear,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__chain(void) { return PyModuleDef_Init(&definition); }
