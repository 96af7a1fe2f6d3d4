/* A matrix with rows and columns changed about: made[c * rows + r] = source[r * columns + c]. Blocks of whole cache lines are
 * read and written; each task does the blocks of `EDGE` rows of the source. */
enum { EDGE = 16 };

struct turned {
    const float *source;
    float *made;
    long rows, columns;
};

static void turn_rows(void *context, long index, int thread) {
    const struct turned *const all = context;
    const long first = index * EDGE, count = all->rows - first < EDGE ? all->rows - first : EDGE;
    (void)thread;
    for (long c = 0; c < all->columns; c += EDGE) {
        const long wide = all->columns - c < EDGE ? all->columns - c : EDGE;
        float block[EDGE][EDGE];
        const float *const from = all->source + first * all->columns + c;
        float *const to = all->made + c * all->rows + first;
        if (count == EDGE && wide == EDGE) {
            for (long r = 0; r < EDGE; r++)
                for (long i = 0; i < EDGE; i++) block[i][r] = from[r * all->columns + i];
            for (long i = 0; i < EDGE; i++) __builtin_memcpy(to + i * all->rows, block[i], sizeof block[i]);
        } else {
            for (long r = 0; r < count; r++)
                for (long i = 0; i < wide; i++) to[i * all->rows + r] = from[r * all->columns + i];
        }
    }
}

void gg_turn(const float *source, float *made, long rows, long columns, const struct gg_runtime *runtime);
void gg_turn(const float *source, float *made, long rows, long columns, const struct gg_runtime *runtime) {
    struct turned all = {source, made, rows, columns};
    runtime->parallel(runtime, turn_rows, &all, (rows + EDGE - 1) / EDGE);
}
