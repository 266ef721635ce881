/* Our own exp, log, sin and cos: the same bits with every compiler, libm and device.
 * f32 functions use only +, ×, fma and bit moves, so that a kernel can repeat them exactly. */
#ifndef FLETCH_NUM_H
#define FLETCH_NUM_H

#include "base/base.h"

float num_exp(float x); /* within 1 ulp; 0 below -87.34, infinity above 88.72 */
float num_log(float x); /* within 1 ulp for normal x > 0 */
float num_sigmoid(float x);
float num_tanh(float x);
float num_softplus(float x);                             /* log(1 + exp(x)) */
void num_sincos(double x, double *sin_x, double *cos_x); /* |x| up to 2^30, error < 1e-15 */

#endif
