import { defineStatement, toArrayLiteral } from "../storage/index.ts";

/** The two tables of narrow rows. They have the same columns, so everything below serves both. */
export type LaneTable = "outbox" | "queue";

export interface ClaimedLane {
  readonly lane: number;
  readonly fence: number;
  readonly token: string;
}

/** The first three parameters of every settle: which lanes, under which claim. */
export function claimParams(claims: readonly ClaimedLane[]): [string, string, string] {
  return [
    toArrayLiteral(claims.map((claim) => claim.lane)),
    toArrayLiteral(claims.map((claim) => claim.fence)),
    toArrayLiteral(claims.map((claim) => claim.token)),
  ];
}

// The lock makes a take-over wait for the settle or the settle see the take-over: without it a settle that was
// overtaken still deleted its row. Always in lane order, so that two statements of one owner cannot deadlock.
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

/** True when every claim named in the first parameters is good; asked once, after the lanes are locked. */
export const FENCED = "(select count(*) from owned) = cardinality($1::text::integer[])";

// The id is asked for as well: after a crash of the server a seq that was never durable may be drawn again.
export function sameRow(given: string): string {
  return `row.lane = ${given}.lane and row.seq = ${given}.seq and row.message_id = ${given}.id`;
}

/**
 * Settling past locks of other sessions: nothing here waits for a row. `$1` to `$3` are claims and `given` lists the rows as
 * (lane, seq, id). `owned` and `busy` are as in `freeLanes`. `going` are the rows that may be settled now. With `keepOrder` a locked row keeps the
 * later rows of its stream out of `going`.
 */
export function pastLocks(
  schema: string,
  table: LaneTable,
  given: string,
  { keepOrder = false }: { readonly keepOrder?: boolean } = {},
): string {
  return `${freeLanes(schema)}, ${freeRows(schema, table, given, { keepOrder, where: "row.lane in (select lane from owned)" })}`;
}

/** Locks the claimed lanes without waiting: `owned` are those that could be locked, `busy` those of another session. */
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

/** The part of `pastLocks` that finds the rows that no other session has locked, for rows that are not settled under claims. */
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

/** What `pastLocks` adds to the answer of a settle: the lanes and the rows that were left out. */
export const LEFT_OUT = `(select coalesce(array_agg(lane), '{}') from busy) as busy, ${leftRows()}`;

export function leftRows(): string {
  return `(select coalesce(array_agg(seq::text), '{}') from there
            where (lane, seq) not in (select lane, seq from going)) as left_out`;
}

/**
 * Finds the rows of one stream. The index of streams holds the lane as a bigint, so this condition fits no other index: to a
 * planner that takes the table for empty, reading the whole lane by its primary key costs the same.
 */
export function sameStream(row: string, lane: string, stream: string): string {
  return `${row}.lane::bigint = (${lane})::bigint and ${row}.stream = ${stream}`;
}

const ROW = `row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
             row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry, row.ctid as place`;

// One text for each row: taking columns apart one by one costs the reader more than all the rest of a read. No field
// may hold a control character, and none is empty unless it is absent. concat() would look up each type for each row.
const joinFieldsSql = (...fields: readonly string[]): string => fields.join(" || e'\\x1f' || ");
const orEmptySql = (field: string): string => `coalesce(${field}, '')`;
const utc = (time: string): string => `(${time} at time zone 'utc')::text`;

// Nearly every row is due, nobody's, without an end and yet to be tried: the rest is worked out for the others only.
const foundRowSql = (blocked = "false"): string =>
  joinFieldsSql(
    "found.lane::text",
    "found.seq::text",
    orEmptySql("found.stream::text"),
    "found.topic",
    "found.type",
    "found.message_id",
    "found.written_on::text",
    "found.place::text",
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

// A message whose letter was edited has a second copy on another day, so the day belongs to its name. Type and topic are told
// by its row. What few messages differ in is told by those that do: each field that is joined costs the server about as much
// as finding a page.
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

/** Waiting until another session gives up its lock on a lane or a row, and on nothing else. */
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

/** Reads of the narrow rows. No locks: a lane has one owner, and what it has in flight it remembers. */
export function readStatements(schema: string, table: LaneTable) {
  const rows = `${schema}.${table}`;
  const moment = `moment as materialized (
         select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
                (select (case when is_called then last_value else 0 end)::text from ${schema}.${table}_seq) as tail,
                exists (select 1 from ${rows} where priority <> 5) as express`;
  // Streams that wait, rows in flight, destinations at rest; read once here, not once per row.
  const avoid = `, $3::text::bigint[] as waiting, $4::text::bigint[] as busy, $5::text::text[] as resting )`;
  const passedOver = `(row.stream is null or row.stream <> all(moment.waiting))
                 and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)`;
  return {
    // An earlier row of the stream with another priority is not in this scan, so it is asked for by name.
    fetch: defineStatement(
      `sagabox.${table}.fetch`,
      `with ${moment}${avoid}, read as materialized (
       ${walkSql(rows, passedOver)}
       )
       select moment.horizon, moment.tail, moment.express, ${TOGETHER} as rows from moment`,
    ),
    // The same with the messages behind the rows, by the ids that were found: a join would visit every partition of the
    // history once per row. Days that come as parameters keep the others from even being opened; what is older is read
    // by itself, and so is what is large: all messages share a text, which must stay small.
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
    // Urgent first, the long-waiting before the merely urgent; never past an earlier row of its own stream.
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
    // Streams and single rows that waited and may go on now, each from its own beginning.
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

// All rows of a read in one text: the reader takes a text apart faster than an answer of many rows.
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
