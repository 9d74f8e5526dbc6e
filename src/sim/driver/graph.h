/* SPDX-License-Identifier: MIT
 *
 * Graphs: nodes and their order, the memory that they allocate, and graphs made ready to launch. A node keeps the
 * operation that it stands for; each launch submits copies of it.
 */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "driver.h"

#pragma GCC visibility push(hidden)

struct node {
    struct handle handle;
    struct graph *graph;
    struct operation *operation; /* never submitted itself; NULL: nothing but an order, or a graph of its own */
    struct graph *child;         /* owned */
    struct graph_memory *memory; /* what it allocates or frees; held */
    struct node_list after;
    bool followed;               /* another node comes after it, or nobody has to */
    const struct node *original; /* of which it is a copy; for comparison only */
    size_t number;               /* its place in an order that is being made */
    struct node *next;
};

struct graph {
    struct handle handle;
    uint64_t id;               /* never reused */
    struct node *nodes, **end; /* in the order in which they were added; owned */
    size_t node_count;
    bool is_child;                 /* belongs to a node */
    bool has_memory;               /* allocates or frees */
    struct graph_exec *executable; /* made of it, if it has memory; then there is at most one */
};

/* ---- graph.c: all under scheduler_lock ---- */

extern struct handle_table graph_table, node_table;

/* NULL when out of memory; no handle before handle_publish. */
struct graph *graph_new(void);
/* The handle, if it had one, is no longer valid. */
void graph_discard(struct graph *graph);
/* A node after those of `after`. Takes over both, but not when it answers NULL: out of memory. */
struct node *graph_add(struct graph *graph, struct operation *operation, struct node_list *after);
CUresult graph_named(CUgraph handle, struct graph **graph);
CUresult node_named(CUgraphNode handle, struct node **node);
/* Nodes of the graph, each once; 1 for others. *list is empty unless it succeeds. */
CUresult graph_nodes_named(const struct graph *graph, const CUgraphNode *handles, size_t count, struct node_list *list);
/* A copy without a handle; 801 if it has memory nodes. */
CUresult graph_copy(const struct graph *graph, struct graph **copy);
/* What cuGraphNodeGetType answers. */
CUgraphNodeType node_type(const struct node *node);

bool node_list_holds(const struct node_list *list, const struct node *node);
bool node_list_add(struct node_list *list, struct node *node);
bool node_list_copy(struct node_list *to, const struct node_list *from);
void node_list_clear(struct node_list *list);

/* ---- graph_memory.c: what nodes allocate and free; under memory_lock ---- */

/* An allocation with a fixed address. It has memory from the first launch that allocates it on; what is free again is
 * kept for the next launch until it is trimmed. */
struct graph_memory {
    struct allocation *allocation;
    uint64_t owner;                                               /* id of the graph whose node allocates it */
    enum { FREED_NOWHERE, FREED_BY_OWNER, FREED_BY_OTHER } freed; /* by a node */
    bool live;                            /* allocated by a launch, and no call and no launch has freed it */
    bool charged;                         /* has memory */
    unsigned uses;                        /* launches that allocate it and whose free has not happened */
    unsigned references;                  /* nodes, of graphs and of executables */
    uint32_t readers_writers;             /* as a pool's */
    struct graph_memory *previous, *next; /* of the device */
};

/* One reference; NULL when out of memory. */
struct graph_memory *graph_memory_new(struct device *device, size_t bytes, uint64_t owner, uint32_t readers_writers);
/* What is allocated at the address by a node, held; NULL if nothing is. */
struct graph_memory *graph_memory_at(uint64_t address);
struct graph_memory *graph_memory_hold(struct graph_memory *memory);
void graph_memory_drop(struct graph_memory *memory);
/* May a node of the graph free it? Notes that one does. */
CUresult graph_memory_free_by(struct graph_memory *memory, const struct graph *graph);
/* It gets memory, unless it has; false when there is none. */
bool graph_memory_charge(struct graph_memory *memory);
/* It was taken by a launch: `live` if no node of the same graph frees it. */
void graph_memory_use(struct graph_memory *memory);
/* A free is on its way: 1 if there is nothing to free... */
CUresult graph_memory_free_begin(struct graph_memory *memory);
/* ...and has happened. */
void graph_memory_free_end(struct graph_memory *memory);
/* What is free gives its memory back. */
void graph_memory_trim(struct device *device);

/* The rest without that lock, but under scheduler_lock. */

/* What a node is to do that allocates; when it is in the graph, or has failed to get there, settle takes back the
 * reference that kept the memory until then. */
CUresult graph_alloc_operation(struct device *device, size_t bytes, const struct graph *graph, uint32_t readers_writers,
                               struct operation **operation);
void graph_alloc_settle(uint64_t address);
/* What a node of the graph is to do that frees. */
CUresult graph_free_operation(uint64_t address, const struct graph *graph, struct operation **operation);

/* ---- graph_exec.c ---- */

/* Places in an executable, each once; owned. */
struct places {
    size_t *all, count;
};

struct exec_node {
    struct operation *operation; /* held */
    struct graph_memory *memory; /* that it allocates or frees; held */
    struct places after;
    size_t branch;
    bool followed;
};

struct branch {
    struct context *context; /* of its nodes; NULL: that of the stream they are launched in */
    uint64_t context_id;
    struct stream *stream; /* NULL before the first launch */
    struct context *made_in;
    uint64_t made_in_id;
    size_t last; /* node */
};

struct graph_exec {
    struct handle handle;
    cuuint64_t flags;
    struct graph *graph;  /* that it was made of, as long as that exists, if it has memory; scheduler_lock */
    pthread_mutex_t lock; /* for one launch at a time; taken before all others */
    struct exec_node *nodes;
    size_t node_count;
    struct branch *branches;
    size_t branch_count;
    struct operation *last; /* of the latest launch; held */
};

CUresult graph_exec_named(CUgraphExec handle, struct graph_exec **exec);
CUresult graph_instantiate(CUgraphExec *handle, CUgraph graph, cuuint64_t flags);
/* Has it a stream, of a context that has not ended? */
bool graph_branch_lives(const struct branch *branch);
/* The graph goes before what was made of it. Under scheduler_lock. */
void graph_exec_forget(struct graph *graph);

#pragma GCC visibility pop

#endif
