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

/**
 * The harness's own evidence, beside the product's tables and without any constraint that could hide a fault. The
 * triggers see what is really written, independently of the product's own reports.
 */
const TABLES = `
  create table aggregate (key text primary key, kseq integer not null default 0);
  create table w_committed (msg_id text, key text, kseq integer);
  create table e_effect (n bigserial, handler text, msg_id text, key text, kseq integer, worker text);
  create table b_wire (n bigserial, lane integer, seq bigint, message_id text, worker text,
                       at timestamptz default clock_timestamp());
  create table a_lane (n bigserial, lane integer, from_owner text, to_owner text, from_fence bigint, to_fence bigint,
                       robbed boolean, at timestamptz default clock_timestamp());
  create table a_lease (lane integer, seq bigint, worker text, primary key (lane, seq));
  create table a_settle (n bigserial, lane integer, seq bigint, worker text, owner text, writer text);`;

const TRIGGERS = `
  create function note_wire() returns trigger language plpgsql as $$
  begin
    insert into public.b_wire (lane, seq, message_id, worker)
    select lane, seq, message_id, current_setting('chaos.worker', true) from added order by seq;
    return null;
  end $$;
  create trigger note_wire after insert on sagabox.queue referencing new table as added
    for each statement execute function note_wire();

  create function note_lane() returns trigger language plpgsql as $$
  begin
    if (new.owner, new.fence, new.token) is not distinct from (old.owner, old.fence, old.token) then return null; end if;
    insert into public.a_lane (lane, from_owner, to_owner, from_fence, to_fence, robbed)
    values (new.lane, old.owner, new.owner, old.fence, new.fence,
            new.owner is not null and exists (select 1 from sagabox.member
                                               where id = old.owner and lease_until > clock_timestamp()));
    return null;
  end $$;
  create trigger note_lane after update on sagabox.relay_lane for each row execute function note_lane();

  create function note_lease() returns trigger language plpgsql as $$
  begin
    insert into public.a_lease (lane, seq, worker)
    select lane, seq, current_setting('chaos.worker', true) from added where lease_until is not null;
    return null;
  end $$;
  create trigger note_lease after insert on sagabox.outbox referencing new table as added
    for each statement execute function note_lease();

  create function note_settle() returns trigger language plpgsql as $$
  begin
    insert into public.a_settle (lane, seq, worker, owner, writer)
    select gone.lane, gone.seq, current_setting('chaos.worker', true), held.owner,
           case when gone.lease_until is not null then leased.worker end
      from gone join sagabox.relay_lane as held on held.lane = gone.lane
      left join public.a_lease as leased on leased.lane = gone.lane and leased.seq = gone.seq;
    return null;
  end $$;
  create trigger note_settle after delete on sagabox.outbox referencing old table as gone
    for each statement execute function note_settle();`;

export async function installEvidence(pool: pg.Pool, keys: number): Promise<void> {
  await pool.query(TABLES);
  await pool.query(TRIGGERS);
  await pool.query("insert into aggregate (key) select 'k' || n from generate_series(1, $1::integer) as n", [
    keys,
  ]);
}
