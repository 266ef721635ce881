/* How a tensor is made of those of a Hugging Face directory: hf_tensors.c decides, hf_make.c does
 * it when the bytes are asked for. */
#ifndef FLETCH_HF_RECIPE_H
#define FLETCH_HF_RECIPE_H

#include "format/hf_model.h"

enum recipe_kind {
    RECIPE_ROWS,      /* the rows taken, in order */
    RECIPE_PAIRS,     /* of each group, rows i and i + n/2 become neighbours 2i and 2i + 1 */
    RECIPE_TRANSPOSE, /* each group's [rows taken][cols] as [cols][rows taken] */
    RECIPE_VALUES,    /* ready-made floats */
    RECIPE_TURNS, /* of each group the first values, then [n_keys][n] of n_rows units as [n][n_keys]
                   */
    RECIPE_PARTS, /* of three ranges of rows one after the other: those rows of every group */
    RECIPE_SCALED, /* the rows, those of each part times a number */
    RECIPE_MXFP4,  /* blocks of 16 bytes with pairs of neighbours, and scales, as MXFP4 */
};

enum recipe_map { MAP_NONE, MAP_PLUS_ONE, MAP_MINUS_EXP }; /* of F32 values */

/* Every source is seen as [n_groups][n_rows][n_cols]; of each group's rows n_take are taken from
 * first on. Results follow each other, converted to the tensor's type. */
struct recipe {
    enum recipe_kind kind;
    u32 n_src;
    const struct st_tensor **src;
    u64 n_groups, n_rows, n_cols;
    u64 first, n_take;
    const float *values;
    u64 n_keys;
    u64 part[3][2]; /* first row, rows */
    enum recipe_map map;
    u64 scale_rows[5]; /* of RECIPE_SCALED: rows of a part, and their factor */
    float scale[5];
    u64 every; /* of the result's rows only every nth, from `first` on; 0: all */
    u64 end;   /* and none from there on; 0: all */
};

#endif
