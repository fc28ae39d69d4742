import { defineStatement, type Statement, toArrayLiteral } from "../storage/index.ts";

/** The two tables of lane rows. They have the same columns, so all statements here work for both. */
export type LaneTable = "outbox" | "queue";

export interface ClaimedLane {
  readonly lane: number;
  readonly fence: number;
  readonly token: string;
}

/** The first three parameters of every settle statement: lanes, fences and tokens. */
export function claimParams(claims: readonly ClaimedLane[]): [string, string, string] {
  return [
    toArrayLiteral(claims.map((claim) => claim.lane)),
    toArrayLiteral(claims.map((claim) => claim.fence)),
    toArrayLiteral(claims.map((claim) => claim.token)),
  ];
}

// Locks the claimed lanes: a take-over then waits for the settle, or the settle sees the take-over. Without the
// lock a former owner could still delete a row. Lanes are locked in order, so two statements of one owner cannot
// deadlock.
export function ownedLanes(schema: string): string {
  return `owned as materialized (
    select held.lane
      from ${schema}.relay_lane as held
      join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
        on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
     order by held.lane
       for update of held
  )`;
}

/** SQL condition: every claim in the first parameters is valid. Evaluated once, after the lanes are locked. */
export const FENCED = "(select count(*) from owned) = cardinality($1::text::integer[])";

// The id is compared too: after a server crash a seq that was never durable may be drawn again.
export function sameRow(wanted: string): string {
  return `row.lane = ${wanted}.lane and row.seq = ${wanted}.seq and row.message_id = ${wanted}.id`;
}

/**
 * CTEs for settling without waiting for row locks. `$1` to `$3` are the claims, and `given` lists the rows as
 * (lane, seq, id). `owned` and `busy` are as in `freeLanes`; `going` lists the rows that may be settled now. With
 * `keepOrder` a locked row keeps the later rows of its stream out of `going`.
 */
export function pastLocks(
  schema: string,
  table: LaneTable,
  given: string,
  { keepOrder = false }: { readonly keepOrder?: boolean } = {},
): string {
  return `${freeLanes(schema)}, ${freeRows(schema, table, given, { keepOrder, where: "row.lane in (select lane from owned)" })}`;
}

/**
 * Locks the claimed lanes without waiting: `owned` lists the locked lanes, `busy` those that another session has
 * locked.
 */
export function freeLanes(schema: string): string {
  const claims = `${schema}.relay_lane as held
      join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
        on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token`;
  return `owned as materialized (
    select held.lane from ${claims} order by held.lane for update of held skip locked
  ), busy as materialized (
    select held.lane from ${claims} where held.lane not in (select lane from owned)
  )`;
}

/** The part of `pastLocks` that finds unlocked rows, also for rows that are settled without claims. */
export function freeRows(
  schema: string,
  table: LaneTable,
  given: string,
  { keepOrder, where = "true" }: { readonly keepOrder: boolean; readonly where?: string },
): string {
  const rows = `${schema}.${table} as row join ${given} as given (lane, seq, id) on ${sameRow("given")} where ${where}`;
  return `there as materialized (
    select row.lane, row.seq, row.stream from ${rows}
  ), free as materialized (
    select row.lane, row.seq, row.stream from ${rows} for update of row skip locked
  ), locked as materialized (
    select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
  ), going as materialized (
    select free.lane, free.seq from free
     where not ${keepOrder} or not exists (
       select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
  )`;
}

/** The result columns that `pastLocks` adds to a settle statement: lanes and rows that were left out. */
export const LEFT_OUT = `(select coalesce(array_agg(lane), '{}') from busy) as busy, ${leftRows()}`;

export function leftRows(): string {
  return `(select coalesce(array_agg(seq::text), '{}') from there
            where (lane, seq) not in (select lane, seq from going)) as left_out`;
}

/**
 * SQL condition for the rows of one stream. The stream index stores the lane as bigint, so this condition matches
 * no other index. Otherwise, with statistics of an empty table, the planner might scan the whole lane by primary
 * key.
 */
export function sameStream(row: string, lane: string, stream: string): string {
  return `${row}.lane::bigint = (${lane})::bigint and ${row}.stream = ${stream}`;
}

const ROW = `row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
             row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry, row.ctid as ctid`;

// Each row is returned as one string, because parsing separate columns takes longer than the rest of a read. Fields
// hold no control characters and are empty only if absent. concat() would look up the type of each field per row.
const joinFieldsSql = (...fields: readonly string[]): string => fields.join(" || e'\\x1f' || ");
const orEmptySql = (field: string): string => `coalesce(${field}, '')`;
const utc = (time: string): string => `(${time} at time zone 'utc')::text`;

// Nearly all rows are due, not leased, without expiry and without attempts, so these fields are sent for the others
// only.
const foundRowSql = (blocked = "false"): string =>
  joinFieldsSql(
    "found.lane::text",
    "found.seq::text",
    orEmptySql("found.stream::text"),
    "found.topic",
    "found.type",
    "found.message_id",
    "found.written_on::text",
    "found.ctid::text",
    `case when found.attempts = 0 and found.max_attempts = 10 then ''
             else found.attempts::text || '/' || found.max_attempts::text end`,
    `case when found.due_at <= moment.at and found.lease_until is null and found.expiry is null and not ${blocked}
             then '' else ${joinFieldsSql(
               `ceil(extract(epoch from least(greatest(found.due_at, found.lease_until), moment.at + interval '1 day') - moment.at)
               * 1000)::text`,
               "case when found.lease_until > moment.at then '1' else '' end",
               "case when found.expiry <= moment.at then '1' else '' end",
               orEmptySql(utc("found.expiry")),
               `case when ${blocked} then '1' else '' end`,
             )} end`,
  );

// An edited dead letter has a second copy of its message on another day, so the day is part of the key. Type and
// topic come from the row. Rare fields are sent only if one of them differs from its default: each joined field
// costs the server about as much as finding a page.
const MESSAGE = joinFieldsSql(
  "id",
  "written_on::text",
  orEmptySql("key"),
  "correlation_id",
  "traceparent",
  "source",
  utc("written_at"),
  `case when kind = 'event' and priority = 5 and schema_version = 1 and headers = '{}' and causation_id is null
                  and saga_id is null and aggregate_type is null and aggregate_id is null and target is null
             then '' else ${joinFieldsSql(
               "kind",
               "priority::text",
               "schema_version::text",
               orEmptySql("causation_id"),
               orEmptySql("saga_id"),
               orEmptySql("aggregate_type"),
               orEmptySql("aggregate_id"),
               orEmptySql("target"),
               "headers",
             )} end`,
  "data",
);

/** Statements that wait until another session releases its lock on a lane or a row. */
export function probeStatements(schema: string, table: LaneTable) {
  return {
    lane: defineStatement(
      "sagabox.lanes.probe_lane",
      `select 1 from ${schema}.relay_lane where lane = $1::integer for update`,
    ),
    row: defineStatement(
      `sagabox.${table}.probe_row`,
      `select 1 from ${schema}.${table} where lane = $1::integer and seq = $2::text::bigint for update`,
    ),
  };
}

/** Statements that read lane rows without locks: a lane has one owner, which remembers its rows in flight. */
export function readStatements(schema: string, table: LaneTable) {
  const rows = `${schema}.${table}`;
  const moment = `moment as materialized (
         select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
                (select (case when is_called then last_value else 0 end)::text from ${schema}.${table}_seq) as tail,
                exists (select 1 from ${rows} where priority <> 5) as express`;
  // Held streams, rows in flight and paused destinations, parsed once instead of once per row.
  const avoid = `, $3::text::bigint[] as waiting, $4::text::bigint[] as busy, $5::text::text[] as resting )`;
  const passedOver = `(row.stream is null or row.stream <> all(moment.waiting))
                 and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)`;
  return {
    // An earlier row of the stream with another priority is not part of this scan, so it is looked up separately.
    fetch: defineStatement(
      `sagabox.${table}.fetch`,
      `with ${moment}${avoid}, read as materialized (
       ${walkSql(rows, passedOver)}
       )
       select moment.horizon, moment.tail, moment.express, ${TOGETHER} as rows from moment`,
    ),
    // `fetch` plus the messages of the rows. A join would visit every partition of `message` once per row. The days
    // in the parameters exclude the other partitions. Older and large messages are read separately, because all
    // messages share one string, which must stay small.
    fetchWhole: defineStatement(
      `sagabox.${table}.fetch`,
      `with ${moment}${avoid}, read as materialized (
       ${walkSql(rows, passedOver)}
       )
       select moment.horizon, moment.tail, moment.express, ${TOGETHER} as rows, null as messages from moment
       union all
       select null, null, null, null, string_agg(${MESSAGE}, e'\\x1e')
         from ${schema}.message
        where id = any(array(select message_id from read))
          and written_on between $8::text::date and $9::text::date
          and octet_length(data) + octet_length(headers) <= 8192`,
    ),
    // Orders by priority raised by age. Never returns a row that has an earlier row in its stream.
    express: defineStatement(
      `sagabox.${table}.express`,
      `with ${moment}${avoid}
       select moment.horizon, moment.tail, moment.express, ${foundRowSql()} as rows,
              least(9, found.priority + floor(extract(epoch from moment.at - found.due_at) * 1000 / $2::double precision))::integer as rank
         from moment
         left join lateral (
           select due.*
             from unnest($1::text::integer[]) as walk (lane)
            cross join lateral (
              select ${ROW}
                from ${rows} as row
               where row.lane = walk.lane and row.priority <> 5
                 and row.due_at <= moment.at and (row.lease_until is null or row.lease_until <= moment.at)
                 and ${passedOver}
                 and (row.stream is null or not exists (
                       select 1 from ${rows} as earlier
                        where ${sameStream("earlier", "row.lane", "row.stream")} and earlier.seq < row.seq))
               order by row.priority desc, row.seq
               limit $6::integer
            ) as due
         ) as found on true
        order by rank desc, found.seq
        limit $7::integer`,
    ),
    // Reads held streams and single rows that are due, each stream from its first row.
    reenter: defineStatement(
      `sagabox.${table}.reenter`,
      `with ${moment} )
       select moment.horizon, moment.tail, moment.express, ${foundRowSql()} as rows
         from moment
         left join lateral (
           (select due.*
              from unnest($1::text::integer[], $2::text::bigint[]) as wait (lane, stream)
             cross join lateral (
               select ${ROW}
                 from ${rows} as row
                where ${sameStream("row", "wait.lane", "wait.stream")}
                order by row.seq
                limit $5::integer
             ) as due)
           union all
           (select ${ROW}
              from unnest($3::text::integer[], $4::text::bigint[]) as wait (lane, seq)
             cross join lateral (
               select ctid, * from ${rows} as own where own.lane = wait.lane and own.seq = wait.seq offset 0
             ) as row)
         ) as found on true`,
    ),
    messages: defineStatement(
      "sagabox.lanes.messages",
      `select ${MESSAGE} as messages
         from ${schema}.message
        where id = any($1::text::text[]) and written_on between $2::text::date and $3::text::date`,
    ),
  };
}

// All rows of a read in one string: splitting it is faster than parsing many result rows.
const TOGETHER = `(select string_agg(read.row, e'\\x1e') from read)`;

function walkSql(rows: string, passedOver: string): string {
  return `select ${foundRowSql("found.blocked")} as row, found.message_id
         from moment
        cross join lateral (
           select due.*
             from unnest($1::text::integer[], $2::text::bigint[]) as walk (lane, mark)
            cross join lateral (
              select ${ROW},
                     moment.express and row.stream is not null and exists (
                       select 1 from ${rows} as earlier
                        where ${sameStream("earlier", "row.lane", "row.stream")}
                          and earlier.priority <> 5 and earlier.seq < row.seq) as blocked
                from ${rows} as row
               where row.lane = walk.lane and row.seq > walk.mark and row.priority = 5
                 and ${passedOver}
               order by row.seq
               limit $6::integer
            ) as due
            limit $7::integer
         ) as found`;
}

export type ReadStatements = ReturnType<typeof readStatements>;

// Backend pids are reused. In the worst case another process's session is taken for this member's, and the lease
// decides. pg_stat_get_activity(null) would list all sessions, so a missing pid becomes 0, which no session has.
const hasSessionSql = (member: string): string =>
  `exists (select 1 from pg_stat_get_activity(coalesce(${member}.backend, 0)))`;

/** SQL for status views: the member's lease is valid and its session still exists. */
export function isWorking(member: string): string {
  return `(${member}.lease_until > clock_timestamp() and (${member}.backend is null or ${hasSessionSql(member)}))`;
}

/** Statements for a member's lease and for the lanes it owns. */
export function ownershipStatements(schema: string) {
  const alive = "member.lease_until > (select clock_timestamp())";
  const free = `not exists (select 1 from ${schema}.member where id = lane.owner and ${alive})`;
  // A ghost is a lane that the table gives to this member although it holds no claim: the reply to `acquire` was
  // lost, or the member dropped the claim without updating the table. Other members cannot take it while this one
  // is alive.
  const ghost = `lane.scope = $1::integer and lane.owner = $2::text
                 and (lane.token <> all((select $3::text::text[])::text[])
                      or lane.lane <> all((select $4::text::integer[])::integer[]))`;
  // If statements use any connection of a pool, the pid of the current one identifies nothing.
  const backend = (hasSession: string): string =>
    `case when ${hasSession}::boolean then pg_backend_pid() end`;
  // Nearly every member still has its own session, so the other sessions of its process are rarely looked up.
  const absent = `case when ${hasSessionSql("member")} then false else not exists (
         select 1 from ${schema}.member as part where part.process = member.process and ${hasSessionSql("part")}) end`;
  return {
    join: defineStatement(
      "sagabox.lanes.join",
      `insert into ${schema}.member (id, scope, worker, lease_until, process, backend, location, guest)
       values ($1::text, $2::integer, $3::text, clock_timestamp() + $4::double precision * interval '1 ms', $5::text,
               ${backend("$6")}, $7::text, $8::boolean)`,
    ),
    // An expired lease is not renewed: its lanes may have a new owner already.
    renew: defineStatement(
      "sagabox.lanes.renew",
      `update ${schema}.member
          set lease_until = clock_timestamp() + $2::double precision * interval '1 ms', backend = ${backend("$3")}
        where id = $1::text and lease_until > clock_timestamp()
       returning pg_current_xact_id()::text as xid`,
    ),
    look: defineStatement(
      "sagabox.lanes.look",
      `select (select count(*)::integer from ${schema}.member where scope = $1::integer and ${alive} and not guest) as members,
              (select count(*)::integer
                 from ${schema}.member
                where scope = $1::integer and ${alive} and not guest and id < $2::text) as rank,
              exists (select 1 from ${schema}.member
                       where id = $2::text and ${alive} and backend is not distinct from ${backend("$6")}) as present,
              (select count(*)::integer
                 from ${schema}.relay_lane as lane
                where lane.scope = $1::integer and ${free}) as free,
              (select count(*)::integer from ${schema}.relay_lane as lane where ${ghost}) as ghosts,
              coalesce((select json_object_agg(process, location) from ${schema}.member
                         where scope = $1::integer and ${alive} and backend is not null and process <> $5::text
                           and ${absent}), '{}')::text as absent`,
    ),
    // Ends all leases of a process in one statement, so that its running work is marked suspect before another
    // worker runs it. Suspects are not recorded shortly after a server start, so nothing is dismissed then either.
    dismiss: defineStatement(
      "sagabox.lanes.dismiss",
      `update ${schema}.member set lease_until = clock_timestamp()
        where id in (select id from ${schema}.member
                      where process = any($1::text::text[]) and ${alive} and ${absent}
                        and pg_postmaster_start_time() < clock_timestamp() - $2::double precision * interval '1 ms'
                        for update skip locked)
       returning id`,
    ),
    // Ghost lanes are released even if this member needs more lanes: only their owner can release them.
    disown: defineStatement(
      "sagabox.lanes.disown",
      `update ${schema}.relay_lane as lane set owner = null, token = null, leased_at = null
        where lane.lane in (select lane.lane from ${schema}.relay_lane as lane where ${ghost}
                             order by lane.lane for update skip locked)`,
    ),
    // Skips lanes that another member is taking or settling, and owners whose renewal has not committed yet. The
    // fence outlives the lease. Owners without a member row are listed before the lanes are locked: a lane locked
    // later is seen in its latest version, and its new owner may have joined after this statement's snapshot. A
    // process may take back lanes of its own earlier memberships even while another session locks their member
    // rows.
    acquire: defineStatement(
      "sagabox.lanes.acquire",
      `with gone as materialized (
         select id from ${schema}.member
          where scope = $2::integer and not (${alive}) for share skip locked),
       forgotten as materialized (
         select distinct lane.owner
           from ${schema}.relay_lane as lane
          where lane.scope = $2::integer and lane.owner is not null
            and not exists (select 1 from ${schema}.member where id = lane.owner)),
       free as materialized (
         select lane.lane
           from ${schema}.relay_lane as lane
           join unnest($5::text::integer[]) with ordinality as wish (lane, turn) on wish.lane = lane.lane
          where lane.scope = $2::integer
            and (lane.owner is null or lane.owner in (select id from gone)
                 or lane.owner in (select owner from forgotten) or lane.owner = any($6::text::text[]))
          order by wish.turn
          limit $3::integer
            for update of lane skip locked
       )
       update ${schema}.relay_lane as lane
          set owner = $1::text, fence = lane.fence + 1, token = $4::text, leased_at = clock_timestamp()
         from free
        where lane.lane = free.lane
       returning lane.lane, lane.fence::text`,
    ),
    release: defineStatement(
      "sagabox.lanes.release",
      `with ${freeLanes(schema)}, released as (
         update ${schema}.relay_lane as lane
            set owner = null, token = null, leased_at = null
           from owned
          where lane.lane = owned.lane
       )
       select coalesce(array_agg(lane), '{}') as busy from busy`,
    ),
    leave: defineStatement("sagabox.lanes.leave", `delete from ${schema}.member where id = $1::text`),
    // A live member would have renewed or joined again before its lease ended.
    reap: defineStatement(
      "sagabox.lanes.reap",
      `delete from ${schema}.member
        where id in (select id from ${schema}.member
                      where scope = $1::integer and lease_until < clock_timestamp() - interval '1 second'
                        for update skip locked)
       returning id, worker`,
    ),
  };
}

/**
 * Returns whether a row of a scope is due now in a lane that no worker owns, other than the lanes of `$2`. A row behind an
 * earlier one of its stream that is not due does not count.
 */
export function dueStatement(schema: string, table: LaneTable): Statement {
  const waits = (row: string): string =>
    `(${row}.due_at > clock_timestamp() or ${row}.lease_until > clock_timestamp())`;
  return defineStatement(
    `sagabox.${table}.due`,
    `select exists (
       select 1
         from ${schema}.relay_lane as lane
        cross join lateral (
          select 1 from ${schema}.${table} as row
           where row.lane = lane.lane and not coalesce(${waits("row")}, false)
             and not exists (
               select 1 from ${schema}.${table} as earlier
                where ${sameStream("earlier", "row.lane", "row.stream")} and earlier.seq < row.seq and ${waits("earlier")})
           limit 1
        ) as due
        where lane.scope = $1::integer and lane.owner is distinct from $2::text
          and not exists (
            select 1 from ${schema}.member
             where id = lane.owner and not guest and lease_until > clock_timestamp())
     ) as due`,
  );
}

export type OwnershipStatements = ReturnType<typeof ownershipStatements>;

/** Fixed: rows store their lane, so another number would require rewriting the tables. */
export const LANES = 256;

/** Returns how many lanes the member with this rank (from 0) should own when `members` share them. */
export function fairShare(members: number, rank: number): number {
  if (members <= 0 || rank < 0 || rank >= members) return 0;
  return Math.floor(LANES / members) + (rank < LANES % members ? 1 : 0);
}

/**
 * Lists all lanes in the order in which the member with this rank should claim them: its own range first, then by
 * distance from it. Two workers then own the same lanes in every scope, so a key passes through one worker only. If
 * the other worker dies, only its keys wait.
 */
export function preferredLanes(members: number, rank: number): number[] {
  const size = fairShare(members, rank);
  const first = Array.from({ length: Math.max(0, rank) }, (_, before) => fairShare(members, before)).reduce(
    (sum, share) => sum + share,
    0,
  );
  const distance = (lane: number): number => {
    const behind = (lane - first + LANES) % LANES;
    return behind < size ? 0 : Math.min(behind - size + 1, LANES - behind);
  };
  return Array.from({ length: LANES }, (_, lane) => lane).sort((a, b) => distance(a) - distance(b));
}

/** Pages of 8 kB that a sample reads: about 35,000 rows, a few milliseconds. */
const SAMPLED_PAGES = 500;

/**
 * CTEs that read a sample of the waiting rows, at a cost that does not grow with the table: `<table>_size` has the
 * percentage that is read (100: all of it), `<table>_waiting` the rows with `percent` and these columns.
 */
export function sampleSql(schema: string, table: LaneTable, columns: string): string {
  return `${table}_size as materialized (
         select least(100, 100.0 * ${SAMPLED_PAGES} / greatest(1, pg_relation_size('${schema}.${table}') / 8192))::real as percent
       ), ${table}_waiting as (
         select size.percent, row.*
           from ${table}_size as size
          cross join lateral (
            select ${columns} from ${schema}.${table} tablesample system (size.percent) where due_at < 'infinity') as row
       )`;
}
