/* The anchor: a fixed piece of work, timed again and again, so that what changes is the machine. A product of two small
 * matrices that stay in the first cache: multiply-adds and loads in about the proportion of a generated kernel. */
struct gg_runtime;
enum { SIZE = 48 };

void gg_anchor(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime)
{
    const float *a = inputs[0], *b = inputs[1];
    float *c = output;
    (void)workspace;
    (void)runtime;
    for (int i = 0; i < SIZE; i++) {
        float row[SIZE] = {0};
        for (int k = 0; k < SIZE; k++)
            for (int j = 0; j < SIZE; j++) row[j] += a[i * SIZE + k] * b[k * SIZE + j];
        for (int j = 0; j < SIZE; j++) c[i * SIZE + j] = row[j];
    }
}
