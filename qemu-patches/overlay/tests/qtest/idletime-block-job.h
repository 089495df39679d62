/*
 * Idletime machine tests: block jobs on a resource.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_BLOCK_JOB_H
#define IDLETIME_BLOCK_JOB_H

#include "idletime-machine.h"

/* That have data; the rest is a hole.  More than a mirror copies at first. */
#define JOB_BYTES   (20 * MiB)

/* A second resource, with the same options; it is asked after RESOURCE. */
#define OTHER       "r1"

/* No release but by the interval, which is a minute. */
#define LONG        "interval-us=60000000,max-hold-ms=0"
#define LONG_US     (60 * 1000 * MS)
#define BUDGET_US   (100 * MS)

typedef struct TestJob {
    TestMachine *m;
    TestDisk *d;                    /* whose image it copies; no resource */
    TestDisk *fg;                   /* on RESOURCE */
    TestDisk *other;                /* on OTHER */
    const struct TestJobKind *kind;
    char *target;                   /* image; NULL: that of d */
} TestJob;

typedef struct TestJobKind {
    const char *name;
    void (*start)(TestJob *job);
    bool has_ready;                 /* ends when it is told to */
} TestJobKind;

extern const TestJobKind job_kind[];
extern const unsigned job_kinds;

/**
 * job_new: a machine with "fg" and "d", and a job on "d" that is attached to
 * RESOURCE right after a foreground request and has most of its data before
 * it.  @options: of the resource
 */
TestJob *job_new(const TestJobKind *kind, const char *options);
/** job_attach: the same afterwards. */
void job_attach(TestJob *job);
/** job_attach_other: to OTHER also. */
void job_attach_other(TestJob *job);
void job_free(TestJob *job);
/** job_go: at full speed; it is slow before. */
void job_go(TestJob *job);
/** job_number: a member of query-idletime, on RESOURCE. */
int64_t job_number(TestJob *job, const char *member);
/** job_number_other: on OTHER. */
int64_t job_number_other(TestJob *job, const char *member);
/** job_await: wait for it, in real time. */
void job_await(TestJob *job, const char *member, int64_t value);
void job_await_other(TestJob *job, const char *member, int64_t value);
bool job_is_attached(TestJob *job);
/** job_await_status: of query-jobs, in real time; NULL: it is gone. */
void job_await_status(TestJob *job, const char *status);
/** job_finish: in time that passes; the end is told where it has_ready. */
void job_finish(TestJob *job);
/** job_check_data: what was copied is what was there. */
void job_check_data(TestJob *job);
/** job_drain: of the disk that it copies. */
void job_drain(TestJob *job);
/** job_test: add "idletime/job/PATH/KIND". */
void job_test(const char *path, const TestJobKind *kind,
              void (*fn)(const void *));
/** job_verb: such as "job-pause" */
void job_verb(TestJob *job, const char *command);

#endif
