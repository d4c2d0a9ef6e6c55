/* The loops of `fingerprint.py`, `digests.py` and `message_ids.py` for what is plain, byte for byte the same.

   Whatever is out of the ordinary, such as a body with nested values or an output with headers, is left to the Python
   functions, so that only what is plainly right is decided here. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>

#define DIGEST_SIZE 16
#define SHA256_SIZE 32
#define MAX_MEMBERS 64      /* which are sorted by insertion */
#define MAX_TEXT (1 << 20)  /* bytes of one text or body: what is larger is rare, and Python packs it */
#define MAX_ITEMS (1 << 20) /* outputs of one message */
#define PUBLISHED_PARTS 4
#define UUID_LENGTH 36
#define UUID_SIZE 16

/* The functions of OpenSSL that hashlib calls in the end, without the objects that it makes for each digest: which takes
   as long again. They are NULL where hashlib has none, or has them hidden. */
typedef struct {
    int (*init)(void *context);
    int (*update)(void *context, const void *data, size_t size);
    int (*final)(unsigned char *digest, void *context);
} Sha256;

/* Room for a context of SHA-256, which takes 112 bytes. */
typedef struct {
    uint64_t words[32];
} Sha256Context;

typedef struct {
    PyObject *sha256, *digest;
    Sha256 openssl;
} Names;

/* Packed bytes: `room` is how many there is memory for. */
typedef struct {
    unsigned char *bytes;
    size_t size, room;
} Buffer;

/* Bytes of UTF-8, with a zero at the end; `owner` is what keeps them. */
typedef struct {
    PyObject *owner;
    const char *start;
    size_t size;
} Text;

typedef struct {
    const char *start;
    size_t size;
} Piece;

/* A member of a JSON object; `number` is the magnitude of an integer, or the byte that msgpack has for a constant. */
typedef struct {
    Piece key, text;
    uint64_t number;
    enum { TEXT, POSITIVE, NEGATIVE, CONSTANT } kind;
} Member;

typedef struct {
    Member all[MAX_MEMBERS];
    size_t count;
} Members;

/* What a list is made with; references are borrowed. */
typedef struct {
    const Names *names;
    PyObject *bodies, *otherwise;
    Buffer buffer;
} Work;

typedef PyObject *(*Make)(Work *work, PyObject *item, Py_ssize_t index);

static Names *names_of(PyObject *module) { return PyModule_GetState(module); }

/* Have room for so many more bytes: 0, or -1 for an error. */
static int reserve(Buffer *buffer, size_t more)
{
    if (more <= buffer->room - buffer->size)
        return 0;
    size_t room = 2 * (buffer->size + more);
    unsigned char *bytes = PyMem_Realloc(buffer->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->bytes = bytes;
    buffer->room = room;
    return 0;
}

/* Add a byte that says what follows, and a number of so many bytes, the highest first. */
static int put(Buffer *buffer, int marker, uint64_t number, int size)
{
    if (reserve(buffer, 1 + sizeof(number)))
        return -1;
    buffer->bytes[buffer->size++] = (unsigned char)marker;
    while (size-- > 0)
        buffer->bytes[buffer->size++] = (unsigned char)(number >> (8 * size));
    return 0;
}

static int put_bytes(Buffer *buffer, const char *start, size_t size)
{
    if (reserve(buffer, size))
        return -1;
    memcpy(buffer->bytes + buffer->size, start, size);
    buffer->size += size;
    return 0;
}

/* Add a text as msgpack has it. */
static int put_text(Buffer *buffer, const char *start, size_t size)
{
    int failed = size < 32      ? put(buffer, 0xa0 | (int)size, 0, 0)
                 : size < 256   ? put(buffer, 0xd9, size, 1)
                 : size < 65536 ? put(buffer, 0xda, size, 2)
                                : put(buffer, 0xdb, size, 4);
    return failed ? -1 : put_bytes(buffer, start, size);
}

/* Add bytes as msgpack has them. */
static int put_blob(Buffer *buffer, const char *start, size_t size)
{
    int failed = size < 256     ? put(buffer, 0xc4, size, 1)
                 : size < 65536 ? put(buffer, 0xc5, size, 2)
                                : put(buffer, 0xc6, size, 4);
    return failed ? -1 : put_bytes(buffer, start, size);
}

/* Begin an array of so many items. */
static int put_array(Buffer *buffer, size_t count)
{
    return count < 16      ? put(buffer, 0x90 | (int)count, 0, 0)
           : count < 65536 ? put(buffer, 0xdc, count, 2)
                           : put(buffer, 0xdd, count, 4);
}

/* Begin a map of so many members, which are `MAX_MEMBERS` at most. */
static int put_map(Buffer *buffer, size_t count)
{
    return count < 16 ? put(buffer, 0x80 | (int)count, 0, 0) : put(buffer, 0xde, count, 2);
}

static int put_positive(Buffer *buffer, uint64_t number)
{
    return number < 128           ? put(buffer, (int)number, 0, 0)
           : number <= UINT8_MAX  ? put(buffer, 0xcc, number, 1)
           : number <= UINT16_MAX ? put(buffer, 0xcd, number, 2)
           : number <= UINT32_MAX ? put(buffer, 0xce, number, 4)
                                  : put(buffer, 0xcf, number, 8);
}

/* Add a negative integer of which the magnitude is given: its lowest bytes are those of the two's complement. */
static int put_negative(Buffer *buffer, uint64_t magnitude)
{
    uint64_t number = 0 - magnitude;
    return magnitude <= 32                  ? put(buffer, (int)(number & 0xff), 0, 0)
           : magnitude <= UINT64_C(1) << 7  ? put(buffer, 0xd0, number, 1)
           : magnitude <= UINT64_C(1) << 15 ? put(buffer, 0xd1, number, 2)
           : magnitude <= UINT64_C(1) << 31 ? put(buffer, 0xd2, number, 4)
                                            : put(buffer, 0xd3, number, 8);
}

/* Take the UTF-8 of a plain str: 1, or 0 for anything else, for surrogates and for what is large; -1 for an error. */
static int take_text(PyObject *given, Text *text)
{
    Py_ssize_t size;
    if (!PyUnicode_CheckExact(given) || PyUnicode_GET_LENGTH(given) > MAX_TEXT)
        return 0;
    if (PyUnicode_IS_COMPACT_ASCII(given)) {
        text->owner = Py_NewRef(given);
        text->start = PyUnicode_AsUTF8AndSize(given, &size); /* its own characters */
        text->size = (size_t)size;
        return 1;
    }
    text->owner = PyUnicode_AsUTF8String(given); /* which does not stay with the str */
    if (text->owner == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    text->start = PyBytes_AS_STRING(text->owner);
    text->size = (size_t)PyBytes_GET_SIZE(text->owner);
    return 1;
}

/* Add a plain str: 1, or 0 when it is none, or -1. */
static int pack_str(Buffer *buffer, PyObject *given)
{
    Text text;
    int result = take_text(given, &text);
    if (result <= 0)
        return result;
    result = put_text(buffer, text.start, text.size) ? -1 : 1;
    Py_DECREF(text.owner);
    return result;
}

/* Compute the SHA-256 of bytes with OpenSSL: 1, or 0 when that is not to be had. */
static int compute(const Sha256 *openssl, const void *data, size_t size, unsigned char *digest)
{
    Sha256Context context;
    return openssl->init != NULL && size <= MAX_TEXT && openssl->init(&context) == 1
           && openssl->update(&context, data, size) == 1 && openssl->final(digest, &context) == 1;
}

/* Return the first bytes of the SHA-256 of an object that has bytes, as hashlib computes it. */
static PyObject *digest_of(const Names *names, PyObject *data)
{
    unsigned char computed[SHA256_SIZE];
    if (PyBytes_CheckExact(data)
        && compute(&names->openssl, PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data), computed))
        return PyBytes_FromStringAndSize((const char *)computed, DIGEST_SIZE);
    PyObject *hash = PyObject_CallOneArg(names->sha256, data), *digest, *first = NULL;
    if (hash == NULL)
        return NULL;
    digest = PyObject_CallMethodNoArgs(hash, names->digest);
    Py_DECREF(hash);
    if (digest == NULL)
        return NULL;
    if (PyBytes_Check(digest) && PyBytes_GET_SIZE(digest) >= DIGEST_SIZE)
        first = PyBytes_FromStringAndSize(PyBytes_AS_STRING(digest), DIGEST_SIZE);
    else
        PyErr_SetString(PyExc_TypeError, "SHA-256 gave no bytes");
    Py_DECREF(digest);
    return first;
}

static PyObject *digest_of_buffer(const Names *names, const Buffer *buffer)
{
    unsigned char computed[SHA256_SIZE];
    if (compute(&names->openssl, buffer->bytes, buffer->size, computed))
        return PyBytes_FromStringAndSize((const char *)computed, DIGEST_SIZE);
    PyObject *data = PyBytes_FromStringAndSize((const char *)buffer->bytes, (Py_ssize_t)buffer->size), *digest;
    if (data == NULL)
        return NULL;
    digest = digest_of(names, data);
    Py_DECREF(data);
    return digest;
}

/* Reading JSON: each function moves `at` behind what it reads, and returns 0 when that is not plain. None goes on at
   the zero that ends the text, so that none reads beyond it. */

static void skip_space(const char **at)
{
    while (**at == ' ' || **at == '\n' || **at == '\r' || **at == '\t')
        ++*at;
}

/* Read a character, and the space before and after it. */
static int read_mark(const char **at, char mark)
{
    skip_space(at);
    if (**at != mark)
        return 0;
    ++*at;
    skip_space(at);
    return 1;
}

/* Read a string without escapes. */
static int read_string(const char **at, Piece *read)
{
    if (**at != '"')
        return 0;
    read->start = ++*at;
    while ((unsigned char)**at >= ' ' && **at != '"' && **at != '\\')
        ++*at;
    read->size = (size_t)(*at - read->start);
    return *(*at)++ == '"';
}

/* Read an integer that is written the one usual way and fits into 64 bits. */
static int read_integer(const char **at, Member *member)
{
    int is_negative = **at == '-';
    const char *first = *at += is_negative;
    uint64_t number = 0, most = (uint64_t)INT64_MAX + (uint64_t)is_negative;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (number > (most - digit) / 10)
            return 0;
        number = 10 * number + digit;
    }
    member->kind = is_negative ? NEGATIVE : POSITIVE;
    member->number = number;
    return *first == '0' ? *at == first + 1 && !is_negative : *at > first;
}

static int read_constant(const char **at, const char *word, size_t size, unsigned char byte, Member *member)
{
    if (strncmp(*at, word, size) != 0)
        return 0;
    *at += size;
    member->kind = CONSTANT;
    member->number = byte;
    return 1;
}

static int read_value(const char **at, Member *member)
{
    switch (**at) {
    case '"':
        member->kind = TEXT;
        return read_string(at, &member->text);
    case 'n':
        return read_constant(at, "null", 4, 0xc0, member);
    case 'f':
        return read_constant(at, "false", 5, 0xc2, member);
    case 't':
        return read_constant(at, "true", 4, 0xc3, member);
    default:
        return read_integer(at, member);
    }
}

/* Order keys by their bytes, which is the order of their characters. */
static int compare(const Piece *one, const Piece *other)
{
    int found = memcmp(one->start, other->start, Py_MIN(one->size, other->size));
    return found != 0 ? found : (one->size > other->size) - (one->size < other->size);
}

/* Put a member where its key belongs: 0 when there is one with this key, or no room. */
static int insert(Members *members, const Member *member)
{
    size_t place = members->count;
    int order = 1;
    while (place > 0 && (order = compare(&member->key, &members->all[place - 1].key)) < 0)
        place--;
    if (order == 0 || members->count == MAX_MEMBERS)
        return 0;
    memmove(&members->all[place + 1], &members->all[place], (members->count - place) * sizeof(Member));
    members->all[place] = *member;
    members->count++;
    return 1;
}

static int read_member(const char **at, Members *members)
{
    Member member = {.kind = CONSTANT};
    return read_string(at, &member.key) && read_mark(at, ':') && read_value(at, &member) && insert(members, &member);
}

/* Read an object that is all of a text. */
static int read_object(const Text *text, Members *members)
{
    const char *at = text->start;
    members->count = 0;
    if (!read_mark(&at, '{'))
        return 0;
    if (*at != '}') {
        do
            if (!read_member(&at, members))
                return 0;
        while (read_mark(&at, ','));
    }
    return read_mark(&at, '}') && at == text->start + text->size;
}

static int put_member(Buffer *buffer, const Member *member)
{
    if (put_text(buffer, member->key.start, member->key.size))
        return -1;
    switch (member->kind) {
    case TEXT:
        return put_text(buffer, member->text.start, member->text.size);
    case POSITIVE:
        return put_positive(buffer, member->number);
    case NEGATIVE:
        return put_negative(buffer, member->number);
    default:
        return put(buffer, (int)member->number, 0, 0);
    }
}

/* Pack the name of a type and a body: 1, or 0 when they are not plain, or -1. */
static int pack_message(Buffer *buffer, PyObject *type, PyObject *body)
{
    Text text;
    Members members;
    buffer->size = 0;
    int result = put_array(buffer, 2) ? -1 : pack_str(buffer, type);
    if (result > 0)
        result = take_text(body, &text);
    if (result <= 0)
        return result;
    result = read_object(&text, &members);
    if (result > 0 && put_map(buffer, members.count))
        result = -1;
    for (size_t index = 0; result > 0 && index < members.count; index++)
        if (put_member(buffer, &members.all[index]))
            result = -1;
    Py_DECREF(text.owner);
    return result;
}

/* Pack an output without headers: 1, or 0 when it is not plain, or -1. */
static int pack_output(Buffer *buffer, PyObject *output)
{
    if (!PyTuple_Check(output) || Py_TYPE(output)->tp_iter != PyTuple_Type.tp_iter
        || PyTuple_GET_SIZE(output) != PUBLISHED_PARTS)
        return 0;
    PyObject *body = PyTuple_GET_ITEM(output, 2), *headers = PyTuple_GET_ITEM(output, 3);
    if (!PyBytes_CheckExact(body) || PyBytes_GET_SIZE(body) > MAX_TEXT || !PyDict_CheckExact(headers)
        || PyDict_GET_SIZE(headers) > 0)
        return 0;
    int result = put_array(buffer, PUBLISHED_PARTS) ? -1 : pack_str(buffer, PyTuple_GET_ITEM(output, 0));
    if (result > 0)
        result = pack_str(buffer, PyTuple_GET_ITEM(output, 1));
    if (result > 0
        && (put_blob(buffer, PyBytes_AS_STRING(body), (size_t)PyBytes_GET_SIZE(body)) || put_array(buffer, 0)))
        result = -1;
    return result;
}

/* Pack what one message published, if it did: 1, or 0 when that is not plain, or -1. */
static int pack_outputs(Buffer *buffer, PyObject *published)
{
    if (!PyList_CheckExact(published) && !PyTuple_CheckExact(published))
        return 0;
    PyObject *outputs = PySequence_Tuple(published); /* nobody else can change it */
    if (outputs == NULL)
        return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(outputs);
    buffer->size = 0;
    int result = count > 0 && count <= MAX_ITEMS;
    if (result > 0 && put_array(buffer, (size_t)count))
        result = -1;
    for (Py_ssize_t index = 0; result > 0 && index < count; index++)
        result = pack_output(buffer, PyTuple_GET_ITEM(outputs, index));
    Py_DECREF(outputs);
    return result;
}

static int value_of_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Read the bytes of a UUID in its one spelling: 0 for any other text. */
static int read_uuid(const char *text, char *bytes)
{
    for (int index = 0; index < UUID_SIZE; index++) {
        if ((index == 4 || index == 6 || index == 8 || index == 10) && *text++ != '-')
            return 0;
        int high = value_of_digit(*text++), low = high < 0 ? -1 : value_of_digit(*text++);
        if (low < 0)
            return 0;
        bytes[index] = (char)(16 * high + low);
    }
    return 1;
}

/* Make the fingerprint of a type and its body, or None. */
static PyObject *make_fingerprint(Work *work, PyObject *type, Py_ssize_t index)
{
    int packed = pack_message(&work->buffer, type, PyTuple_GET_ITEM(work->bodies, index));
    if (packed > 0)
        return digest_of_buffer(work->names, &work->buffer);
    return packed < 0 ? NULL : Py_NewRef(Py_None);
}

/* Make the digest of what one message published. */
static PyObject *make_outputs_digest(Work *work, PyObject *published, Py_ssize_t Py_UNUSED(index))
{
    int packed = pack_outputs(&work->buffer, published);
    if (packed > 0)
        return digest_of_buffer(work->names, &work->buffer);
    return packed < 0 ? NULL : PyObject_CallOneArg(work->otherwise, published);
}

static PyObject *make_state_digest(Work *work, PyObject *encoded, Py_ssize_t Py_UNUSED(index))
{
    return digest_of(work->names, encoded);
}

/* Make the key of an id. */
static PyObject *make_key(Work *work, PyObject *id, Py_ssize_t Py_UNUSED(index))
{
    char bytes[UUID_SIZE];
    Py_ssize_t size;
    if (PyUnicode_CheckExact(id) && PyUnicode_IS_COMPACT_ASCII(id) && PyUnicode_GET_LENGTH(id) == UUID_LENGTH
        && read_uuid(PyUnicode_AsUTF8AndSize(id, &size), bytes))
        return PyBytes_FromStringAndSize(bytes, UUID_SIZE);
    return PyObject_CallOneArg(work->otherwise, id);
}

/* Return a list of what is made of each item. */
static PyObject *list_of(Work *work, PyObject *items, Make make)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t index = 0; list != NULL && index < PyTuple_GET_SIZE(items); index++) {
        PyObject *made = make(work, PyTuple_GET_ITEM(items, index), index);
        if (made == NULL || PyList_Append(list, made))
            Py_CLEAR(list);
        Py_XDECREF(made);
    }
    PyMem_Free(work->buffer.bytes);
    return list;
}

/* Return a list of what is made of each item of any sequence, which nobody else can change meanwhile. */
static PyObject *list_of_any(Work *work, PyObject *sequence, Make make)
{
    PyObject *items = PySequence_Tuple(sequence), *list;
    if (items == NULL)
        return NULL;
    list = list_of(work, items, make);
    Py_DECREF(items);
    return list;
}

static PyObject *fingerprints(PyObject *module, PyObject *args)
{
    PyObject *types, *bodies, *list = NULL;
    if (!PyArg_ParseTuple(args, "OO", &types, &bodies))
        return NULL;
    types = PySequence_Tuple(types);
    bodies = types == NULL ? NULL : PySequence_Tuple(bodies);
    if (bodies != NULL && PyTuple_GET_SIZE(types) != PyTuple_GET_SIZE(bodies))
        PyErr_SetString(PyExc_ValueError, "expected a body for each type");
    else if (bodies != NULL) {
        Work work = {.names = names_of(module), .bodies = bodies};
        list = list_of(&work, types, make_fingerprint);
    }
    Py_XDECREF(types);
    Py_XDECREF(bodies);
    return list;
}

static PyObject *outputs_digests(PyObject *module, PyObject *args)
{
    PyObject *published;
    Work work = {.names = names_of(module)};
    if (!PyArg_ParseTuple(args, "OO", &published, &work.otherwise))
        return NULL;
    return list_of_any(&work, published, make_outputs_digest);
}

static PyObject *state_digests(PyObject *module, PyObject *encoded)
{
    Work work = {.names = names_of(module)};
    return list_of_any(&work, encoded, make_state_digest);
}

static PyObject *id_keys(PyObject *module, PyObject *args)
{
    PyObject *ids;
    Work work = {.names = names_of(module)};
    if (!PyArg_ParseTuple(args, "OO", &ids, &work.otherwise))
        return NULL;
    return list_of_any(&work, ids, make_key);
}

/* Say whether OpenSSL's functions give what hashlib gives. */
static int agrees(const Names *names, const Sha256 *openssl)
{
    unsigned char computed[SHA256_SIZE];
    PyObject *data = PyBytes_FromString("what hashlib gives"), *expected;
    if (data == NULL || !compute(openssl, PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data), computed)) {
        Py_XDECREF(data);
        return 0;
    }
    expected = digest_of(names, data);
    Py_DECREF(data);
    int found = expected != NULL && memcmp(PyBytes_AS_STRING(expected), computed, DIGEST_SIZE) == 0;
    Py_XDECREF(expected);
    return found;
}

/* Look for OpenSSL's functions in the library that hashlib's module has loaded. */
static void find_openssl(Names *names)
{
    PyObject *module = PyImport_ImportModule("_hashlib");
    PyObject *path = module == NULL ? NULL : PyModule_GetFilenameObject(module);
    const char *name = path == NULL ? NULL : PyUnicode_AsUTF8(path);
    void *library = name == NULL ? NULL : dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) {
        Sha256 found;
        *(void **)&found.init = dlsym(library, "SHA256_Init");
        *(void **)&found.update = dlsym(library, "SHA256_Update");
        *(void **)&found.final = dlsym(library, "SHA256_Final");
        if (found.init != NULL && found.update != NULL && found.final != NULL && agrees(names, &found))
            names->openssl = found; /* the library is never closed */
    }
    Py_XDECREF(path);
    Py_XDECREF(module);
    PyErr_Clear(); /* without them hashlib is asked */
}

static int prepare(PyObject *module)
{
    Names *names = names_of(module);
    PyObject *hashlib = PyImport_ImportModule("hashlib");
    if (hashlib == NULL)
        return -1;
    names->sha256 = PyObject_GetAttrString(hashlib, "sha256");
    names->digest = PyUnicode_InternFromString("digest");
    Py_DECREF(hashlib);
    if (names->sha256 == NULL || names->digest == NULL)
        return -1;
    find_openssl(names);
    if (PyModule_AddIntConstant(module, "HAS_OPENSSL", names->openssl.init != NULL))
        return -1;
    return PyModule_AddIntMacro(module, MAX_MEMBERS) || PyModule_AddIntMacro(module, MAX_TEXT) ? -1 : 0;
}

/* There is nothing to traverse or clear before: no name leads back to the module. */
static void release(void *module)
{
    Names *names = names_of(module);
    if (names != NULL) {
        Py_CLEAR(names->sha256);
        Py_CLEAR(names->digest);
    }
}

static PyMethodDef methods[] = {
    {"fingerprints", fingerprints, METH_VARARGS, "Return `fingerprint` of each pair, None where not sure."},
    {"outputs_digests", outputs_digests, METH_VARARGS, "Return `digest_outputs` of each, called where not sure."},
    {"state_digests", state_digests, METH_O, "Return `digest_state` of each."},
    {"id_keys", id_keys, METH_VARARGS, "Return `id_key` of each, called for all but UUIDs."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_digests",
    .m_size = sizeof(Names),
    .m_methods = methods,
    .m_slots = slots,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__digests(void) { return PyModuleDef_Init(&definition); }
