/* The loops of `digests.py` and `fingerprint.py`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_digests"};

PyMODINIT_FUNC PyInit__digests(void) { return PyModuleDef_Init(&definition); }
