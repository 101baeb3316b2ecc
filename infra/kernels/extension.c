/* What stands between Python and the kernels: arguments are taken apart, the kernel runs without the interpreter's lock.
 *
 * A kernel is machine code that `compile.py` has made of a Python function. It takes its arguments as numba lays them out: an
 * integer is one word; an array is seven or more: two that belong to its memory's owner (0: not counted), number of items, bytes
 * of an item, address, then length and stride of each dimension; a named tuple is its fields one after another. It writes its
 * result through the first argument and returns 0, or the number of an error.
 *
 * Only the stable interface of CPython 3.11 is used, so one file serves every version from there on. Its few declarations stand
 * here, since the headers of Python are not on every machine that has Python. */

typedef long long i64;
typedef i64 Py_ssize_t;
typedef struct _object PyObject;

typedef struct {
  void *buf;
  PyObject *obj;
  Py_ssize_t len, itemsize;
  int readonly, ndim;
  char *format;
  Py_ssize_t *shape, *strides, *suboffsets;
  void *internal;
} Py_buffer;

typedef struct {
  const char *name;
  void *function;
  int flags;
  const char *doc;
} PyMethodDef;

typedef struct {
  Py_ssize_t refcount;
  void *type;
  void *init;
  Py_ssize_t index;
  void *copy;
  const char *name, *doc;
  Py_ssize_t size;
  PyMethodDef *methods;
  void *slots, *traverse, *clear, *free;
} PyModuleDef;

extern PyObject *PyExc_TypeError, *PyExc_RuntimeError, *PyExc_ImportError;
extern PyObject *PyErr_Format(PyObject *, const char *, ...);
extern PyObject *PyErr_Occurred(void);
extern void PyErr_Clear(void);
extern int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
extern void PyBuffer_Release(Py_buffer *);
extern PyObject *PyNumber_Index(PyObject *);
extern i64 PyLong_AsLongLong(PyObject *);
extern unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
extern PyObject *PyLong_FromLongLong(i64);
extern PyObject *PyBool_FromLong(long);
extern PyObject *Py_BuildValue(const char *, ...);
extern Py_ssize_t PyTuple_Size(PyObject *);
extern PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
extern void Py_DecRef(PyObject *);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern PyObject *PyModule_Create2(PyModuleDef *, int);
extern int PyModule_AddStringConstant(PyObject *, const char *, const char *);

#define METH_FASTCALL 0x80
#define PYTHON_ABI_VERSION 3
#define CONTIGUOUS_AND_WRITABLE (0x1 | 0x4 | 0x8 | 0x10 | 0x20) /* with its format, shape and strides */

#define ARRAYS_MAX 96
#define WORDS_MAX 1024

#ifdef __x86_64__
#define LEVELS 2
#else
#define LEVELS 1
#endif

typedef struct {
  const char *name;
  const char *types;              /* two characters an argument, see `machine_code`; a named tuple in brackets */
  char result;                    /* n: none, i: an integer, b: a truth */
  int (*run[LEVELS])(const i64 *, i64 *); /* by processor; takes the words and where the result goes */
} Kernel;

/* Which of `CPUS` in `compile.py` this processor is; -1: none of them. */
static int level;

#ifdef __x86_64__
#define LEVELS_NEED "AVX2, FMA and BMI2 (x86-64-v3)"
#define HAS(word, bits) (((word) & (bits)) == (bits))

static unsigned cpuid(unsigned leaf, unsigned *b, unsigned *c)
{
  unsigned a = leaf, d;
  *c = 0;
  asm volatile("cpuid" : "+a"(a), "=b"(*b), "+c"(*c), "=d"(d));
  return a;
}

static int find_level(void)
{
  unsigned b, c, saved, ignored, highest = cpuid(0, &b, &c);
  cpuid(1, &b, &c);
  if (highest < 7 || !HAS(c, 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29)) /* FMA, MOVBE, OSXSAVE, AVX, F16C */
    return -1;
  asm volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(saved), "=d"(ignored) : "c"(0)); /* xgetbv: what the system keeps */
  cpuid(0x80000001u, &b, &c);
  if (!HAS(c, 1u << 5) || !HAS(saved, 0x6)) /* LZCNT */
    return -1;
  cpuid(7, &b, &c);
  if (!HAS(b, 1u << 3 | 1u << 5 | 1u << 8)) /* BMI1, AVX2, BMI2 */
    return -1;
  return HAS(b, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31) && HAS(saved, 0xe6); /* AVX-512 F, DQ, CD, BW, VL */
}
#else
#define LEVELS_NEED "what every aarch64 has"

static int find_level(void)
{
  return 0;
}
#endif

typedef struct {
  int arrays, words;
  Py_buffer view[ARRAYS_MAX];
  i64 word[WORDS_MAX];
} Call;

static int take_number(Call *call, char letter, PyObject *value)
{
  PyObject *number = PyNumber_Index(value);
  if (!number)
    return -1;
  call->word[call->words++] = letter == 'u' ? (i64)PyLong_AsUnsignedLongLong(number) : PyLong_AsLongLong(number);
  Py_DecRef(number);
  return PyErr_Occurred() ? -1 : 0;
}

static int is_of(char letter, const char *format, Py_ssize_t size)
{
  char is = format && format[0] && !format[1] ? format[0] : 0;
  switch (letter) {
  case 'i': return size == 8 && (is == 'l' || is == 'q');
  case 'u': return size == 8 && (is == 'L' || is == 'Q');
  case 'f': return size == 8 && is == 'd';
  case 'w': return size == 4 && is == 'i';
  case 'b': return size == 1 && is == 'b';
  }
  return 0;
}

static int take_array(Call *call, char letter, int dimensions, PyObject *value)
{
  Py_buffer *view = &call->view[call->arrays];
  i64 *word = call->word + call->words, items = 1;
  int d;
  if (PyObject_GetBuffer(value, view, CONTIGUOUS_AND_WRITABLE))
    return -1;
  call->arrays++;
  if (view->ndim != dimensions || !is_of(letter, view->format, view->itemsize))
    return -1;
  for (d = 0; d < dimensions; d++) {
    items *= view->shape[d];
    word[5 + d] = view->shape[d];
    word[5 + dimensions + d] = view->strides[d];
  }
  word[0] = word[1] = 0;
  word[2] = items;
  word[3] = view->itemsize;
  word[4] = (i64)view->buf;
  call->words += 5 + 2 * dimensions;
  return 0;
}

static int take(Call *call, const char *types, PyObject *value)
{
  return types[1] == '0' ? take_number(call, types[0], value) : take_array(call, types[0], types[1] - '0', value);
}

/* Returns the types behind those of this argument; 0: it has others. */
static const char *take_argument(Call *call, const char *types, PyObject *value)
{
  Py_ssize_t i;
  if (*types != '(')
    return take(call, types, value) ? 0 : types + 2;
  for (i = 0, types++; *types != ')'; i++, types += 2) {
    PyObject *item = PyTuple_GetItem(value, i);
    if (!item || take(call, types, item))
      return 0;
  }
  return PyTuple_Size(value) == i ? types + 1 : 0;
}

static PyObject *answer(const Kernel *kernel, int status, i64 result)
{
  if (status)
    return PyErr_Format(PyExc_RuntimeError, "%s: the kernel ended with error %d", kernel->name, status);
  if (kernel->result == 'n')
    return Py_BuildValue("");
  return kernel->result == 'b' ? PyBool_FromLong((long)(result & 1)) : PyLong_FromLongLong(result);
}

static PyObject *run(const Kernel *kernel, PyObject *const *arguments, Py_ssize_t count)
{
  Call call;
  PyObject *found = 0;
  const char *types = kernel->types;
  Py_ssize_t at;
  call.arrays = call.words = 0;
  for (at = 0; at < count && *types; at++) {
    const char *rest = take_argument(&call, types, arguments[at]);
    if (!rest) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError, "%s: argument %d: expected %s, arrays writable and without gaps", kernel->name, (int)at + 1, types);
      break;
    }
    types = rest;
  }
  if (!PyErr_Occurred()) {
    if (at < count || *types) {
      PyErr_Format(PyExc_TypeError, "%s: expected as many arguments as in %s, not %d", kernel->name, kernel->types, (int)count);
    } else {
      i64 result = 0;
      void *thread = PyEval_SaveThread();
      int status = kernel->run[level](call.word, &result);
      PyEval_RestoreThread(thread);
      found = answer(kernel, status, result);
    }
  }
  while (call.arrays)
    PyBuffer_Release(&call.view[--call.arrays]);
  return found;
}

/* Made by `compile.py`: the kernels, and for each a function that Python calls. */
#include "kernels.h"

static PyModuleDef module = {1, 0, 0, 0, 0, "_kernels", "Kernels as machine code; see machine_code.", -1, METHODS, 0, 0, 0, 0};

PyObject *PyInit__kernels(void)
{
  PyObject *made;
  level = find_level();
  if (level < 0)
    return PyErr_Format(PyExc_ImportError, "this processor has not " LEVELS_NEED);
  made = PyModule_Create2(&module, PYTHON_ABI_VERSION);
  if (made && PyModule_AddStringConstant(made, "SOURCES", SOURCES)) {
    Py_DecRef(made);
    return 0;
  }
  return made;
}
