/* A supervised call, step by step as `Watch.supervise` describes it in Python, without a frame of its own. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stddef.h>

#define GIVEN 3 /* a state, a message and a context */
#define HEAD 2  /* bytes that say how long a note is */

/* What is being handled now, as `watch.Now` has it: `message_id` is NULL when nothing is. */
typedef struct {
    PyObject_HEAD
    unsigned long long calls, expired;
    PyObject *message_id;
} Now;

/* A method under supervision. `memory` is where its keeper reads the note of a message, of `room` bytes at most. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *dict;
    Now *now;
    PyObject *method, *suspects, *write, *try_apart, *expire, *attribute;
    Py_buffer memory;
    Py_ssize_t room;
} Call;

typedef struct {
    PyTypeObject *now_type;
} State;

/* Write the id of a message where the keeper reads it; what is no plain text is left to Python. */
static int note(Call *self, PyObject *message_id)
{
    if (!PyUnicode_CheckExact(message_id) || !PyUnicode_IS_COMPACT_ASCII(message_id)
        || PyUnicode_GET_LENGTH(message_id) > self->room) {
        PyObject *written = PyObject_CallOneArg(self->write, message_id);
        Py_XDECREF(written);
        return written == NULL ? -1 : 0;
    }
    Py_ssize_t size = PyUnicode_GET_LENGTH(message_id);
    unsigned char *memory = self->memory.buf;
    memory[0] = (unsigned char)(size & 0xff);
    memory[1] = (unsigned char)(size >> 8);
    memcpy(memory + HEAD, PyUnicode_1BYTE_DATA(message_id), (size_t)size);
    return 0;
}

/* Raise that a call has taken too long, whatever it returned or raised: that is the context of the error. */
static PyObject *late(Call *self, PyObject *result)
{
    PyObject *type, *error, *trace, *new_type, *new_error, *new_trace;
    PyErr_Fetch(&type, &error, &trace);
    Py_XDECREF(result);
    PyObject *returned = PyObject_CallNoArgs(self->expire);
    if (returned != NULL) {
        Py_DECREF(returned);
        PyErr_SetString(PyExc_SystemError, "nothing was raised for a call that took too long");
    }
    if (type == NULL)
        return NULL;
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    PyErr_Fetch(&new_type, &new_error, &new_trace);
    PyErr_NormalizeException(&new_type, &new_error, &new_trace);
    PyException_SetContext(new_error, error);
    PyErr_Restore(new_type, new_error, new_trace);
    Py_DECREF(type);
    Py_XDECREF(trace);
    return NULL;
}

/* Try a suspect apart first: 0, or -1 for an error, such as that it ends its process. */
static int try_apart(Call *self, PyObject *const *given)
{
    PyObject *all[] = {self->method, given[0], given[1], given[2]};
    PyObject *tried = PyObject_Vectorcall(self->try_apart, all, 1 + GIVEN, NULL);
    Py_XDECREF(tried);
    return tried == NULL ? -1 : 0;
}

static PyObject *call(PyObject *callable, PyObject *const *given, size_t count, PyObject *keywords)
{
    Call *self = (Call *)callable;
    Now *now = self->now;
    if (PyVectorcall_NARGS(count) != GIVEN || (keywords != NULL && PyTuple_GET_SIZE(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "expected a state, a message and a context");
        return NULL;
    }
    PyObject *message_id = PyObject_GetAttr(given[2], self->attribute);
    if (message_id == NULL)
        return NULL;
    int is_suspect = PySet_Contains(self->suspects, message_id);
    if (is_suspect < 0 || (is_suspect && try_apart(self, given))) {
        Py_DECREF(message_id);
        return NULL;
    }
    now->calls++;
    Py_XSETREF(now->message_id, message_id);
    PyObject *result = note(self, message_id) ? NULL : PyObject_Vectorcall(self->method, given, GIVEN, NULL);
    Py_CLEAR(now->message_id);
    return now->expired == now->calls ? late(self, result) : result;
}

static int traverse_call(Call *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->dict);
    Py_VISIT(self->now);
    Py_VISIT(self->method);
    Py_VISIT(self->suspects);
    Py_VISIT(self->write);
    Py_VISIT(self->try_apart);
    Py_VISIT(self->expire);
    return 0;
}

static int clear_call(Call *self)
{
    Py_CLEAR(self->dict);
    Py_CLEAR(self->now);
    Py_CLEAR(self->method);
    Py_CLEAR(self->suspects);
    Py_CLEAR(self->write);
    Py_CLEAR(self->try_apart);
    Py_CLEAR(self->expire);
    return 0;
}

static void end_call(Call *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear_call(self);
    Py_XDECREF(self->attribute);
    PyBuffer_Release(&self->memory);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *new_call(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *method, *now, *suspects, *memory, *write, *apart, *expire;
    Py_ssize_t room;
    State *state = PyType_GetModuleState(type);
    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "expected no names");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OO!O!OnOOO", &method, state->now_type, &now, &PyFrozenSet_Type, &suspects, &memory,
                          &room, &write, &apart, &expire))
        return NULL;
    Call *self = (Call *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = call;
    self->now = (Now *)Py_NewRef(now);
    self->method = Py_NewRef(method);
    self->suspects = Py_NewRef(suspects);
    self->write = Py_NewRef(write);
    self->try_apart = Py_NewRef(apart);
    self->expire = Py_NewRef(expire);
    self->attribute = PyUnicode_InternFromString("_message_id");
    if (self->attribute != NULL && PyObject_GetBuffer(memory, &self->memory, PyBUF_WRITABLE) == 0) {
        self->room = Py_MIN(Py_MIN(room, UINT16_MAX), self->memory.len - HEAD);
        return (PyObject *)self;
    }
    Py_DECREF(self);
    return NULL;
}

static void end_now(Now *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->message_id);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef members_of_now[] = {
    {"calls", T_ULONGLONG, offsetof(Now, calls), 0, "How many calls there were."},
    {"expired", T_ULONGLONG, offsetof(Now, expired), 0, "The number of the call that took too long."},
    {"message_id", T_OBJECT, offsetof(Now, message_id), 0, "The message that is being handled, None when none is."},
    {NULL},
};

static PyType_Slot slots_of_now[] = {
    {Py_tp_doc, "What is being handled now."},
    {Py_tp_members, members_of_now},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, end_now},
    {0, NULL},
};

static PyType_Spec now_spec = {
    .name = "runtime.supervision._calls.Now",
    .basicsize = sizeof(Now),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots_of_now,
};

static PyMemberDef members_of_call[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Call, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Call, dict), READONLY, NULL},
    {NULL},
};

/* A method keeps its name and its documentation under supervision. */
static PyGetSetDef attributes_of_call[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

static PyType_Slot slots_of_call[] = {
    {Py_tp_members, members_of_call},
    {Py_tp_getset, attributes_of_call},
    {Py_tp_new, new_call},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, traverse_call},
    {Py_tp_clear, clear_call},
    {Py_tp_dealloc, end_call},
    {0, NULL},
};

static PyType_Spec call_spec = {
    .name = "runtime.supervision._calls.Call",
    .basicsize = sizeof(Call),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = slots_of_call,
};

static int prepare(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->now_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &now_spec, NULL);
    if (state->now_type == NULL || PyModule_AddType(module, state->now_type))
        return -1;
    PyObject *call_type = PyType_FromModuleAndSpec(module, &call_spec, NULL);
    int failed = call_type == NULL || PyModule_AddType(module, (PyTypeObject *)call_type);
    Py_XDECREF(call_type);
    return failed ? -1 : 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    if (state != NULL)
        Py_VISIT(state->now_type);
    return 0;
}

static int clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    if (state != NULL)
        Py_CLEAR(state->now_type);
    return 0;
}

static void release(void *module) { clear(module); }

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_calls",
    .m_size = sizeof(State),
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__calls(void) { return PyModuleDef_Init(&definition); }
