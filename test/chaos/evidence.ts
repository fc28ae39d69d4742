import type pg from "pg";

/** Ground truth: written in the transaction that published. */
export interface Committed {
  readonly id: string;
  readonly key: string;
  readonly kseq: number;
}

/** One copy of a message seen on the wire, in order of arrival. */
export interface WireCopy {
  readonly id: string;
  /** The destination: a consumer group, or the broker. */
  readonly group: string;
  readonly worker: string;
  readonly atMs: number;
}

export interface Effect extends Committed {
  readonly handler: string;
  readonly worker: string;
}

/** A lane changed hands, or was given back. */
export interface LaneMove {
  readonly lane: number;
  readonly fromOwner: string | null;
  readonly toOwner: string | null;
  readonly fromFence: number;
  readonly toFence: number;
  /** Taken while its owner's lease was still running. */
  readonly robbed: boolean;
}

/** An outbox row was deleted by `worker` while `owner` held its lane. */
export interface Settle {
  readonly lane: number;
  readonly seq: string;
  readonly worker: string;
  readonly owner: string | null;
  /** To whom the row was leased when it was written, unless that lease was let go. */
  readonly writer: string | null;
}

export interface Fault {
  /** Whom it hit; "*" for all. */
  readonly worker: string;
  readonly fromMs: number;
  readonly toMs: number;
}

export interface Evidence {
  readonly handlers: readonly string[];
  /** Where every message has to appear. */
  readonly groups: readonly string[];
  readonly committed: readonly Committed[];
  readonly wire: readonly WireCopy[];
  readonly effects: readonly Effect[];
  readonly laneMoves: readonly LaneMove[];
  readonly settles: readonly Settle[];
  readonly faults: readonly Fault[];
}

export async function readCommitted(pool: pg.Pool): Promise<Committed[]> {
  return rows(pool, "select msg_id as id, key, kseq from w_committed");
}

export async function readEffects(pool: pg.Pool): Promise<Effect[]> {
  return rows(pool, "select handler, msg_id as id, key, kseq, worker from e_effect order by n");
}

export async function readWire(pool: pg.Pool): Promise<WireCopy[]> {
  return rows(
    pool,
    `select message_id as id, (lane / 256)::text as "group", coalesce(worker, '') as worker,
            (extract(epoch from at) * 1000)::double precision as "atMs"
       from b_wire order by seq`,
  );
}

export async function readLaneMoves(pool: pg.Pool): Promise<LaneMove[]> {
  return rows(
    pool,
    `select lane, from_owner as "fromOwner", to_owner as "toOwner", from_fence::integer as "fromFence",
            to_fence::integer as "toFence", robbed
       from a_lane order by n`,
  );
}

export async function readSettles(pool: pg.Pool): Promise<Settle[]> {
  return rows(
    pool,
    "select lane, seq, coalesce(worker, '') as worker, owner, writer from a_settle order by n",
  );
}

async function rows<R extends object>(pool: pg.Pool, sql: string): Promise<R[]> {
  return (await pool.query<R & pg.QueryResultRow>(sql)).rows;
}
