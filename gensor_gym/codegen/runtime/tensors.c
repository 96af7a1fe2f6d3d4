/* Tensors of torch by DLPack's exchange interface for C (`__dlpack_c_exchange_api__` of their type, dlpack.h 1.3): one is
 * described in some 70 ns and made in 350, where an array of NumPy made of it takes 780 and the way back 620.
 *
 * The interface says nothing of gradients nor of numbers that are negated when they are read; torch is asked. Who gives the
 * tensor holds it for the call, as with torch's own functions; an output's memory belongs to an array of NumPy, which lives as
 * long as its tensor. */
enum { IN_HOST_MEMORY = 1, PINNED = 3 /* DLPack's kinds of devices that are the host's memory */ };

struct gg_dltensor {
    char *data;
    int32_t device, number, axes;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements */
    uint64_t offset;
};

struct gg_managed {
    uint32_t major, minor;
    object *owner;
    void (*forget)(struct gg_managed *);
    uint64_t flags;
    struct gg_dltensor tensor;
    int64_t sizes[]; /* our own: shape, then strides */
};

struct gg_exchange {
    uint32_t major, minor;
    void *older, *allocate, *share;
    int (*make)(struct gg_managed *, object **);
    int (*describe)(object *, struct gg_dltensor *);
};

struct gg_torch {
    const void *tensor, *parameter; /* the types; of a subclass nothing is known */
    const struct gg_exchange *exchange;
    object *requires_grad, *is_negated, *are_gradients_on; /* a name, two functions */
};
static struct gg_torch torch; /* zeros until a tensor was seen */

static int is_tensor(const object *given) {
    return torch.exchange && (given->type == torch.tensor || given->type == torch.parameter);
}

/* Whether an answer, which is let go, is False. */
static int is_no(object *answer) {
    if (answer) py.release(answer);
    else py.forgive();
    return answer == py.no;
}

/* Where the elements of a tensor lie, or 0 where it is not dense, aligned, of this kind, in the host's memory, as it stands.
 * One without memory (zeros that autograd has not written, fake ones) lies at 0. */
static char *data_of_tensor(object *given, const struct gg_kind *kind) {
    if (!is_no(py.named(given, torch.requires_grad)) && !is_no(py.call(torch.are_gradients_on))) return 0;
    if (!is_no(py.call_with(torch.is_negated, &given, 1, 0))) return 0;
    struct gg_dltensor t;
    if (torch.exchange->describe(given, &t)) {
        py.forgive(); /* of sparse ones, for example: Python will say so */
        return 0;
    }
    const int here = t.device == IN_HOST_MEMORY || t.device == PINNED;
    if (!here || t.code != kind->code || t.bits != kind->bits || t.lanes != 1 || t.axes != kind->axes) return 0;
    int64_t stride = 1;
    for (intptr_t d = kind->axes - 1; d >= 0; stride *= t.shape[d--])
        if (t.shape[d] != kind->shape[d] || (t.strides[d] != stride && t.shape[d] != 1)) return 0;
    char *data = t.data + t.offset;
    return (uintptr_t)data % (uintptr_t)(kind->bits / 8) ? 0 : data;
}

/* Lets go of an output's array; in whatever thread the last tensor of it ends. */
static void forget_output(struct gg_managed *output) {
    if (py.runs()) { /* else all memory goes with the process */
        int state = py.enter();
        py.release(output->owner);
        py.leave(state);
    }
    free(output);
}

/* A tensor on the memory of an array, in whose place it comes; 0 with Python's error set. */
static object *tensor_of(array *output, const struct gg_kind *kind) {
    struct gg_managed *made = malloc(sizeof *made + 2 * (size_t)kind->axes * sizeof(int64_t));
    if (!made) abort(); /* of some hundred bytes */
    *made = (struct gg_managed){.major = 1, .owner = &output->head, .forget = forget_output};
    int64_t *shape = made->sizes, *strides = made->sizes + kind->axes, stride = 1;
    for (intptr_t d = kind->axes - 1; d >= 0; stride *= shape[d--]) shape[d] = kind->shape[d], strides[d] = stride;
    made->tensor = (struct gg_dltensor){output->data, IN_HOST_MEMORY, 0, (int32_t)kind->axes, (uint8_t)kind->code,
                                        (uint8_t)kind->bits, 1, shape, strides, 0};
    object *tensor = 0;
    return torch.exchange->make(made, &tensor) ? 0 : tensor;
}

void gg_torch_init(const struct gg_torch *found) { torch = *found; }
