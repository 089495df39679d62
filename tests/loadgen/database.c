/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dbload: a database's load, with SQLite on a file system of the guest.
 *
 * Transactions of the TPC-B kind (move an amount between two accounts, note it
 * in a history) arrive as a Poisson process; each is durable when it is done:
 * write-ahead log, synchronous=FULL, so a write and a flush at least. Latency
 * counts from the arrival. Options and output are idleload's; --device is the
 * database's file, made if it is not there.
 */
#define _GNU_SOURCE
#include "load.h"

#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ACCOUNTS = 10000,
    /* Pages: 800 KiB, so that most accounts are not in SQLite's cache. */
    CACHE_PAGES = 200,
};

static void execute(sqlite3 *database, const char *format, ...)
{
    va_list arguments;
    char *error = NULL, *sql;

    va_start(arguments, format);
    sql = sqlite3_vmprintf(format, arguments);
    va_end(arguments);
    if (sqlite3_exec(database, sql, NULL, NULL, &error) != SQLITE_OK) {
        fail("%s: %s", sql, error);
    }
    sqlite3_free(sql);
}

static sqlite3 *open_database(const Load *load)
{
    sqlite3 *database;

    if (sqlite3_open(load->device, &database) != SQLITE_OK) {
        fail("%s: %s", load->device, sqlite3_errmsg(database));
    }
    execute(database, "PRAGMA journal_mode=WAL");
    execute(database, "PRAGMA synchronous=FULL; PRAGMA cache_size=%d",
            CACHE_PAGES);
    execute(database,
            "BEGIN; CREATE TABLE IF NOT EXISTS account"
            "(id INTEGER PRIMARY KEY, balance INTEGER, filler TEXT);"
            "CREATE TABLE IF NOT EXISTS history(a, b, amount);"
            "INSERT OR IGNORE INTO account SELECT value, 0, printf('%%.200c', 'x')"
            " FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL"
            " SELECT value + 1 FROM n WHERE value < %d) SELECT value FROM n);"
            "COMMIT", ACCOUNTS);
    return database;
}

static void transact(sqlite3 *database, uint64_t number)
{
    unsigned a = number % ACCOUNTS + 1, b = (number >> 20) % ACCOUNTS + 1;
    int amount = (number >> 40) % 1000;

    execute(database,
            "BEGIN IMMEDIATE;"
            "UPDATE account SET balance = balance - %d WHERE id = %u;"
            "UPDATE account SET balance = balance + %d WHERE id = %u;"
            "INSERT INTO history VALUES(%u, %u, %d); COMMIT",
            amount, a, amount, b, a, b, amount);
}

static void *run_database(void *opaque)
{
    Worker *worker = opaque;
    Load *load = (Load *)worker->load;
    sqlite3 *database = open_database(load);
    double mean_ns = (double)NS_PER_S / load->rate;
    int64_t next_ns, now;

    /* Making the database does not count. */
    load->begin_ns = now_ns();
    load->end_ns = load->begin_ns + (int64_t)(load->seconds * NS_PER_S);
    next_ns = load->begin_ns + next_exponential(&worker->pause_state) * mean_ns;
    for (now = now_ns(); !finished(worker, now); now = now_ns()) {
        if (now < next_ns) {
            sleep_until(next_ns < load->end_ns ? next_ns : load->end_ns);
            continue;
        }
        transact(database, next_random(&worker->random_state));
        keep_sample(worker, next_ns, now_ns());
        next_ns += next_exponential(&worker->pause_state) * mean_ns;
    }
    sqlite3_close(database);
    return NULL;
}

int main(int argc, char **argv)
{
    Load load = parse_options(argc, argv);
    Worker worker = {
        .load = &load, .random_state = load.seed, .pause_state = ~load.seed,
    };

    if (!load.rate || load.outstanding != 1) {
        fail("give --rate (transactions a second), and no --outstanding");
    }
    catch_stop();
    if (pthread_create(&worker.thread, NULL, run_database, &worker)) {
        fail("no thread");
    }
    report_load(&load, &worker);
    return 0;
}
