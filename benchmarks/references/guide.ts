import type pg from "pg";
import type { BenchDatabase } from "../harness/server.ts";
import { order } from "../product/order-placed.ts";

const BATCH = 100;
/** The pool its workers share. */
const CONNECTIONS = 10;

interface Claimed {
  readonly event_id: string;
  readonly aggregate_id: string;
  readonly payload: unknown;
}

/** One event to the broker, until it is confirmed. */
type Send = (event: {
  readonly id: string;
  readonly key: string;
  readonly payload: unknown;
}) => Promise<void>;

/** The textbook outbox: a status column, claimed by UPDATE, then read and marked event by event. It never sleeps here. */
export class Guide {
  readonly #database: BenchDatabase;
  readonly #pool: pg.Pool;
  readonly #send: Send;

  private constructor(place: BenchDatabase, send: Send) {
    this.#database = place;
    this.#pool = place.pool(CONNECTIONS);
    this.#send = send;
  }

  static async open(place: BenchDatabase, send: Send = () => Promise.resolve()): Promise<Guide> {
    await place.admin.query(TABLE);
    return new Guide(place, send);
  }

  async drain(count: number): Promise<number> {
    await this.#database.admin.query("truncate guide_outbox");
    await fill(this.#database.admin, count);
    await this.#database.admin.query("vacuum analyze guide_outbox");
    const began = performance.now();
    let done = 0;
    while (done < count) {
      const { rows } = await this.#pool.query<Claimed>(CLAIM);
      await Promise.all(rows.map((event) => this.#publish(event)));
      done += rows.length;
    }
    return (count / (performance.now() - began)) * 1000;
  }

  async #publish({ event_id: id, aggregate_id: key, payload }: Claimed): Promise<void> {
    await this.#pool.query({ name: "guide_read", text: READ, values: [id] });
    await this.#send({ id, key, payload });
    await this.#pool.query({ name: "guide_sent", text: SENT, values: [id] });
  }
}

async function fill(pool: pg.Pool, count: number): Promise<void> {
  await pool.query(FILL, [count, JSON.stringify(order(1))]);
}

const TABLE = `
  create table guide_outbox (
    id            bigserial primary key,
    event_id      uuid not null unique,
    event_type    text not null,
    aggregate_id  text not null,
    payload       jsonb not null,
    headers       jsonb not null default '{}',
    status        text not null default 'pending',
    attempts      integer not null default 0,
    max_attempts  integer not null default 10,
    available_at  timestamptz not null default now(),
    claimed_at    timestamptz,
    published_at  timestamptz,
    last_error    text,
    created_at    timestamptz not null default now()
  );
  create index on guide_outbox (status, available_at, created_at) where status in ('pending', 'failed');`;

const FILL = `
  insert into guide_outbox (event_id, event_type, aggregate_id, payload)
  select gen_random_uuid(), 'order.placed', 'customer-' || n % 2000, $2::jsonb from generate_series(1, $1::integer) as n`;

const CLAIM = `
  with claimable as (
    select id from guide_outbox
     where status = 'pending' and available_at <= now()
     order by created_at
     limit ${BATCH}
       for update skip locked
  )
  update guide_outbox set status = 'claimed', claimed_at = now()
   where id in (select id from claimable)
  returning event_id, event_type, aggregate_id, payload, headers, attempts, max_attempts`;

const READ = "select status, attempts, max_attempts from guide_outbox where event_id = $1";
const SENT = "update guide_outbox set status = 'sent', published_at = now() where event_id = $1";
