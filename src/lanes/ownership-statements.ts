import { defineStatement } from "../storage/index.ts";
import { freeLanes } from "./statements.ts";

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
      `insert into ${schema}.member (id, scope, worker, lease_until, process, backend, place)
       values ($1::text, $2::integer, $3::text, clock_timestamp() + $4::double precision * interval '1 ms', $5::text,
               ${backend("$6")}, $7::text)`,
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
      `select (select count(*)::integer from ${schema}.member where scope = $1::integer and ${alive}) as members,
              (select count(*)::integer from ${schema}.member where scope = $1::integer and ${alive} and id < $2::text) as rank,
              exists (select 1 from ${schema}.member
                       where id = $2::text and ${alive} and backend is not distinct from ${backend("$6")}) as present,
              (select count(*)::integer
                 from ${schema}.relay_lane as lane
                where lane.scope = $1::integer and ${free}) as free,
              (select count(*)::integer from ${schema}.relay_lane as lane where ${ghost}) as ghosts,
              coalesce((select json_object_agg(process, place) from ${schema}.member
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
