/* What kernels are called with: heads of objects and NumPy's arrays, what is used of Python, and what an array must be. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct object {
    uint32_t references; /* the lower half, of 64 bits before Python 3.12 */
    uint32_t more;
    const void *type;
} object;

typedef struct {
    object head;
    char *data;
    int axes;
    const intptr_t *shape, *strides;
    object *base;
    const void *dtype;
    int flags;
} array;

/* Of Python's stable interface; `function.py` fills it in. */
struct gg_python {
    object *none, *no;
    void (*hold)(object *), (*release)(object *);
    object *(*call)(object *), *(*call_with)(object *, object *const *, size_t, object *);
    object *(*attribute)(object *, const char *), *(*named)(object *, object *);
    object *(*new_tuple)(intptr_t);
    int (*put)(object *, intptr_t, object *); /* into a new tuple, which takes the reference over */
    void *(*pointer_of)(object *);
    void (*forgive)(void); /* the error that is set */
    void *(*unlock)(void);
    void (*lock)(void *);
    int (*runs)(void), (*enter)(void);
    void (*leave)(int);
};
static struct gg_python py;

struct gg_kind { /* of an array: what it must be */
    const void *dtype; /* NumPy's */
    const intptr_t *shape;
    intptr_t axes, bytes;
    int code, bits; /* of an element, as DLPack says it */
};
