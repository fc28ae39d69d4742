import type pg from "pg";
import { expect } from "vitest";

/** A cause of death, and how many messages it has killed. */
export interface Cause {
  readonly consumer: string;
  readonly letters: number;
  /** SQL of the error's text about message number `n`. */
  readonly error: string;
  readonly errorType?: string;
  /** SQL of the key about message number `n`. Default: each its own. */
  readonly key?: string;
  readonly reason?: string;
  /** SQL of the data of message number `n`. */
  readonly data?: string;
  /** What the ids of its messages begin with. Default: `m` and the number of the cause. */
  readonly prefix?: string;
}

/** Writes dead letters of a consumer as if its handler had failed, with nothing else left of their messages. */
export async function someDeadLetters(
  pool: pg.Pool,
  { type, topic }: { readonly type: string; readonly topic: string },
  causes: readonly Cause[],
): Promise<void> {
  for (const [index, cause] of causes.entries()) {
    const { consumer, letters, error, errorType = "Error", key = "'k' || n", reason = "exhausted" } = cause;
    const data = cause.data ?? "json_build_object('n', n, 'cause', $2::int)::text";
    const prefix = cause.prefix ?? `m${index}`;
    await pool.query(
      `insert into sagabox.dead_letter
         (origin, consumer, message_id, kind, type, schema_version, topic, key, correlation_id, traceparent, source,
          priority, max_attempts, headers, data, written_at, reason, attempts, error_type, error_message)
       select 'consumer', $1, $8 || '-' || n, 'event', $3, 1, $4, ${key}, 'c' || n,
              '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'shop', 5, 3, '{}',
              case when $2::int >= 0 then ${data} end,
              date_trunc('hour', now()) - interval '1 hour' + n * interval '1 ms', $5, 3, $6, ${error}
         from generate_series(1, $7::int) as n`,
      [consumer, index, type, topic, reason, errorType, letters, prefix],
    );
  }
}

/** Resolves when each of these consumers has a worker: `bus.run()` does not wait for their first lease. */
export async function consumersAtWork(pool: pg.Pool, ...consumers: readonly string[]): Promise<void> {
  const listConsumers = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ name: string }>(
      `select name from sagabox.consumer_group as known
        where exists (select 1 from sagabox.member where scope = known.id and lease_until > clock_timestamp())`,
    );
    return rows.map(({ name }) => name);
  };
  await expect.poll(listConsumers).toEqual(expect.arrayContaining([...consumers]));
}
