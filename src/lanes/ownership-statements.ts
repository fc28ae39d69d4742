import { defineStatement } from "../storage/index.ts";
import { freeLanes } from "./statements.ts";

// The server knows its sessions by numbers that come again: at the worst somebody else's is taken for one of the process, and the
// lease decides. 0 is nobody's; null would be everybody's.
const hasSessionSql = (member: string): string =>
  `exists (select 1 from pg_stat_get_activity(coalesce(${member}.backend, 0)))`;

/** For people who look: its lease runs, and it has the session it is known by. */
export function isWorking(member: string): string {
  return `(${member}.lease_until > clock_timestamp() and (${member}.backend is null or ${hasSessionSql(member)}))`;
}

/** A member's lease, and the lanes that hang on it. */
export function ownershipStatements(schema: string) {
  const alive = "member.lease_until > (select clock_timestamp())";
  const free = `not exists (select 1 from ${schema}.member where id = lane.owner and ${alive})`;
  // A lane that is ours under a token we do not know was leased by a statement whose answer we never got; one that we do
  // not know ourselves was given up here and not in the table. Nobody else may take it while we are alive.
  const ghost = `lane.scope = $1::integer and lane.owner = $2::text
                 and (lane.token <> all((select $3::text::text[])::text[])
                      or lane.lane <> all((select $4::text::integer[])::integer[]))`;
  // Where statements go through whichever connection of a pool, the one at hand says nothing.
  const backend = (hasSession: string): string =>
    `case when ${hasSession}::boolean then pg_backend_pid() end`;
  // Nearly everybody has the session it is known by, and then nobody looks for its others.
  const absent = `case when ${hasSessionSql("member")} then false else not exists (
         select 1 from ${schema}.member as part where part.process = member.process and ${hasSessionSql("part")}) end`;
  return {
    join: defineStatement(
      "sagabox.lanes.join",
      `insert into ${schema}.member (id, scope, worker, lease_until, process, backend, place)
       values ($1::text, $2::integer, $3::text, clock_timestamp() + $4::double precision * interval '1 ms', $5::text,
               ${backend("$6")}, $7::text)`,
    ),
    // A lease that has run out is not renewed: its lanes may have a new owner already.
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
    // Everything that a process has a lease on, in one statement: what it was running is suspect before somebody else runs it.
    // Whoever looks for suspects accuses nobody on a server that has only just started, so nobody is dismissed there either.
    dismiss: defineStatement(
      "sagabox.lanes.dismiss",
      `update ${schema}.member set lease_until = clock_timestamp()
        where id in (select id from ${schema}.member
                      where process = any($1::text::text[]) and ${alive} and ${absent}
                        and pg_postmaster_start_time() < clock_timestamp() - $2::double precision * interval '1 ms'
                        for update skip locked)
       returning id`,
    ),
    // Given back whoever needs it: we may have our share already, and nobody else can take what is ours.
    disown: defineStatement(
      "sagabox.lanes.disown",
      `update ${schema}.relay_lane as lane set owner = null, token = null, leased_at = null
        where lane.lane in (select lane.lane from ${schema}.relay_lane as lane where ${ghost}
                             order by lane.lane for update skip locked)`,
    ),
    // Lanes another member is taking or settling are passed over, never waited for; the fence outlives the lease. So is a
    // member whose renewal has begun but not committed yet: its lease is not over. Owners that are no members any more are
    // listed first: a lane that was taken since this statement began is looked at as it is now, but its new owner may have
    // joined later than this statement can see. What this process held as an earlier member it may take back even while
    // another session keeps the row of that member locked.
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
    // Whoever has been silent for a lease and more is gone for good; a living one would have joined again.
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
