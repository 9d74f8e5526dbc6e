/* SPDX-License-Identifier: MIT
 *
 * What the simulated runtime exports besides the names of the real one, for tests and the curious.
 */
#ifndef SIM_RUNTIME_H
#define SIM_RUNTIME_H

#ifdef __cplusplus
extern "C" {
#endif

/* How often an unsimulated runtime function has been called in this process, NULL: all of them together. */
__attribute__((visibility("default"))) unsigned long long sim_runtime_unsimulated_calls(const char *name);

#ifdef __cplusplus
}
#endif

#endif
