import { defineStatement, type Statement } from "../storage/index.ts";

export type InboxStatements = ReturnType<typeof inboxStatements>;

/** The scope of member rows that belong to crash ledgers. Lanes have scopes from zero. */
const LEDGER_SCOPE = -1;

/** The statements of the inbox. `schema` must be quoted. */
export function inboxStatements(schema: string) {
  const inbox = `${schema}.consumer_inbox`;
  const alive = (member: string): string =>
    `exists (select 1 from ${schema}.member where member.id = ${member} and member.lease_until > (select clock_timestamp()))`;
  // Finds each row by its primary key, whatever the table statistics are. A join, or `= any` before PostgreSQL 17, that
  // was planned while the table was empty would read all rows of the consumer.
  const entries = (ids: string, columns: string): string =>
    `unnest(${ids}::text::text[]) as given (id)
        cross join lateral (
          select ${columns} from ${inbox} as entry
           where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found`;
  const origins = (ids: string, columns: string): string =>
    `${entries(ids, "entry.effect, coalesce(entry.effect_of, entry.event_id) as origin_id")}
        cross join lateral (
          select ${columns} from ${inbox} as entry
           where entry.consumer_name = $1::text and entry.event_id = found.origin_id offset 0) as origin`;
  const entryCtids = (ids: string): string =>
    `any(array(select found.row_id from ${entries(ids, "entry.ctid as row_id")}))`;
  // The crash ledger must survive the process but not the server, so its writes do not wait for the disk.
  const quick = `quick as materialized (select set_config('synchronous_commit', 'off', true) as mode)`;
  return {
    schema,
    // The first statement of the handler's transaction. A second worker waits here until the first transaction has ended.
    remember: defineStatement(
      "sagabox.inbox.remember",
      `insert into ${inbox} (consumer_name, event_id, source_topic, event_type, payload)
       values ($1::text, $2::text, $3::text, $4::text, $5::text)
       on conflict do nothing
       returning 1`,
    ),
    // `remember` for a message with a time to live: inserts nothing if it has expired by the clock of the database.
    rememberInTime: defineStatement(
      "sagabox.inbox.remember_in_time",
      `insert into ${inbox} (consumer_name, event_id, source_topic, event_type, payload)
       select $1::text, $2::text, $3::text, $4::text, $5::text
        where coalesce($6::text::timestamptz > clock_timestamp(), true)
       on conflict do nothing
       returning 1`,
    ),
    // Sorted, so that two batches with common messages wait for each other without a deadlock. It returns no rows: the
    // number of inserted rows shows whether all messages are new, as they nearly always are.
    rememberAll: defineStatement(
      "sagabox.inbox.remember_all",
      `insert into ${inbox} (consumer_name, event_id, source_topic, event_type, payload)
       select $1::text, given.id, given.topic, given.type, given.payload
         from unnest($2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::timestamptz[])
              as given (id, topic, type, payload, expires_at)
        where coalesce(given.expires_at > (select clock_timestamp()), true)
        order by given.id
       on conflict do nothing`,
    ),
    // `rememberAll` for messages of one topic and type, without expiry or stored payload. Nearly all batches are like
    // this, and the server parses one array instead of five.
    rememberAlike: defineStatement(
      "sagabox.inbox.remember_alike",
      `insert into ${inbox} (consumer_name, event_id, source_topic, event_type)
       select $1::text, given.id, $3::text, $4::text
         from unnest($2::text::text[]) as given (id)
        order by given.id
       on conflict do nothing`,
    ),
    // Records a message that its handler ignored or refused, as handled without effect.
    passOver: defineStatement(
      "sagabox.inbox.pass_over",
      `insert into ${inbox} (consumer_name, event_id, source_topic, event_type, effect)
       values ($1::text, $2::text, $3::text, $4::text, false)
       on conflict do nothing`,
    ),
    // Claims a command and the commands it refers to, and waits for those that are running. Sorted, so that commands that
    // refer to each other wait without a deadlock.
    claim: defineStatement(
      "sagabox.inbox.claim",
      `insert into ${inbox} (consumer_name, event_id, source_topic, event_type, payload, effect)
       select $1::text, given.id, given.topic, given.type, given.payload, given.own
         from (select $2::text, $3::text, $4::text, $5::text, true
               union all
               select earlier.id, earlier.topic, earlier.type, null, false
                 from unnest($7::text::text[], $8::text::text[], $9::text::text[]) as earlier (id, topic, type))
              as given (id, topic, type, payload, own)
        where coalesce($6::text::timestamptz > (select clock_timestamp()), true)
        order by given.id
       on conflict do nothing
       returning event_id`,
    ),
    // Runs as its own statement after the claim, which may have waited for the commit that this one must see. An effect
    // that was undone does not count.
    effectOf: defineStatement(
      "sagabox.inbox.effect_of",
      `select origin.event_id as id, origin.result
         from ${origins("$2", "entry.event_id, entry.result, entry.effect, entry.undone_by, entry.consumed_at")}
        where found.effect and origin.effect and origin.undone_by is null
        order by origin.consumed_at
        limit 1`,
    ),
    takeBack: defineStatement(
      "sagabox.inbox.take_back",
      `update ${inbox} as origin set undone_by = $3::text
        where origin.effect and origin.effect_of is null and origin.undone_by is null
          and origin.ctid = any(array(
            select origin.row_id from ${origins("$2", "entry.ctid as row_id")} where found.effect))
       returning origin.event_id`,
    ),
    carriedOut: defineStatement(
      "sagabox.inbox.carried_out",
      `select 1 from ${entries("$2", "entry.effect")} where found.effect limit 1`,
    ),
    adopt: defineStatement(
      "sagabox.inbox.adopt",
      `update ${inbox} set effect_of = $3::text, result = $4::text where consumer_name = $1::text and event_id = $2::text`,
    ),
    withoutEffect: defineStatement(
      "sagabox.inbox.without_effect",
      `update ${inbox} set effect = false where consumer_name = $1::text and event_id = $2::text`,
    ),
    recall: defineStatement(
      "sagabox.inbox.recall",
      `select found.event_id, found.result from ${entries("$2", "entry.event_id, entry.result")}`,
    ),
    // Finds the messages of a batch that this transaction inserted, if it did not insert all of them. Transaction ids wrap
    // around, but not within an hour.
    recallAll: defineStatement(
      "sagabox.inbox.recall_all",
      `select found.event_id,
              found.xmin = pg_current_xact_id()::xid and found.consumed_at > transaction_timestamp() - interval '1 hour' as fresh
         from ${entries("$2", "entry.event_id, entry.xmin, entry.consumed_at")}`,
    ),
    finish: defineStatement(
      "sagabox.inbox.finish",
      `update ${inbox} set processing_duration_ms = $3::integer, result = $4::text
        where consumer_name = $1::text and event_id = $2::text`,
    ),
    finishAll: defineStatement(
      "sagabox.inbox.finish_all",
      `update ${inbox} set processing_duration_ms = $2::integer where ctid = ${entryCtids("$3")}`,
    ),
    finishWithResults: defineStatement(
      "sagabox.inbox.finish_with_results",
      `update ${inbox}
          set processing_duration_ms = $2::integer,
              result = (select $4::text::text[])[array_position((select $3::text::text[]), event_id)]
        where ctid = ${entryCtids("$3")}`,
    ),
    stats: defineStatement(
      "sagabox.inbox.stats",
      `select consumer_name as consumer, count(*)::double precision as total,
              to_char(min(consumed_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as oldest,
              count(*) filter (where consumed_at > clock_timestamp() - interval '1 hour')::double precision as last_hour,
              count(*) filter (where consumed_at > clock_timestamp() - interval '1 day')::double precision as last_day
         from ${inbox}
        where $1::text is null or consumer_name = $1::text
        group by consumer_name
        order by consumer_name`,
    ),
    forget: defineStatement(
      "sagabox.inbox.forget",
      `delete from ${inbox}
        where ctid = any(array(
          select ctid from ${inbox}
           where consumed_at < (select clock_timestamp()) - $1::double precision * interval '1 ms'
           limit $2::integer
             for update skip locked))`,
    ),
    // Keeps the session active while its handler waits for something outside the database.
    stay: defineStatement("sagabox.inbox.stay", "select 1"),
    forgetSuspects: defineStatement(
      "sagabox.inbox.forget_suspects",
      `delete from ${schema}.suspect
        where noticed_at < clock_timestamp() - $1::double precision * interval '1 ms'`,
    ),
    // Renews the member row of this process, or inserts it again if another process has deleted it.
    beat: defineStatement(
      "sagabox.ledger.beat",
      `with reaped as (
         delete from ${schema}.member
          where id in (select id from ${schema}.member
                        where scope = ${LEDGER_SCOPE} and id <> $1::text
                          and lease_until < clock_timestamp() - interval '1 second'
                          for update skip locked)
       )
       insert into ${schema}.member (id, scope, worker, lease_until, process)
       values ($1::text, ${LEDGER_SCOPE}, $2::text, clock_timestamp() + $3::double precision * interval '1 ms', $4::text)
       on conflict (id) do update set lease_until = excluded.lease_until`,
    ),
    leave: defineStatement(
      "sagabox.ledger.leave",
      `with gone as (delete from ${schema}.running where member = $1::text)
       delete from ${schema}.member where id = $1::text`,
    ),
    // Stores the messages in flight, and returns the suspects among them and whether another member has died. Without
    // suspects of this consumer, the ids are not searched for.
    list: defineStatement(
      "sagabox.ledger.list",
      `with ${quick}, listed as (
         insert into ${schema}.running (member, consumer, event_ids, alone)
         select $1::text, $2::text, $3::text::text[], $4::boolean from quick
         on conflict (member, consumer) do update
            set event_ids = excluded.event_ids, alone = excluded.alone, started_at = excluded.started_at
       )
       select exists (select 1 from ${schema}.running as other
                       where other.member <> $1::text and not ${alive("other.member")}) as deaths,
              coalesce((select json_object_agg(suspect.event_id, suspect.crashes)
                          from ${schema}.suspect
                         where exists (select 1 from ${schema}.suspect as known where known.consumer = $2::text)
                           and suspect.consumer = $2::text and suspect.event_id = any($3::text::text[])), '{}')::text
                as suspects`,
    ),
    // No lease could be renewed while the server was down, so no member counts as dead until one lease after its start.
    // Deleting the row of a dead member counts its crash once. Messages that it had finished do not become suspects.
    notice: defineStatement(
      "sagabox.ledger.notice",
      `with dead as (
         delete from ${schema}.running
          where not ${alive("running.member")}
            and pg_postmaster_start_time() < clock_timestamp() - $1::double precision * interval '1 ms'
         returning consumer, event_ids, alone
       ), accused as (
         select dead.consumer, left_behind.id, max(dead.alone::integer) as crashes
           from dead, unnest(dead.event_ids) as left_behind (id)
          where (select true from ${inbox} as done
                  where done.consumer_name = dead.consumer and done.event_id = left_behind.id) is null
          group by dead.consumer, left_behind.id
       )
       insert into ${schema}.suspect (consumer, event_id, crashes)
       select accused.consumer, accused.id, accused.crashes from accused
       on conflict (consumer, event_id) do update
          set crashes = suspect.crashes + excluded.crashes, noticed_at = clock_timestamp()
       returning consumer, event_id, crashes`,
    ),
    acquit: defineStatement(
      "sagabox.ledger.acquit",
      `delete from ${schema}.suspect where consumer = $1::text and event_id = $2::text`,
    ),
  };
}

/**
 * Dedupe and effect in one statement. The user's text reads from `fresh`, which has a row only if the message is new. A
 * user's query is counted, because PostgreSQL would not run an unused one. Our five parameters follow the user's.
 */
export function onceStatement(schema: string, text: string, userParams: number): Statement {
  const own = (n: number): string => `$${userParams + n}::text`;
  return defineStatement(
    "sagabox.inbox.once",
    `with fresh as (
       insert into ${schema}.consumer_inbox (consumer_name, event_id, source_topic, event_type)
       select ${own(1)}, ${own(2)}, ${own(3)}, ${own(4)}
        where coalesce(${own(5)}::timestamptz > clock_timestamp(), true)
       on conflict do nothing
       returning consumer_name, event_id
     ), effect as (
       ${text}
     )
     select exists (select 1 from fresh) as fresh${countRowsSql(text)}`,
  );
}

/** The user's text for a message whose dedupe row was inserted before: `fresh` always has its row. */
export function claimedStatement(text: string, userParams: number): Statement {
  return defineStatement(
    "sagabox.inbox.claimed",
    `with fresh as (
       select $${userParams + 1}::text as consumer_name, $${userParams + 2}::text as event_id
     ), effect as (
       ${text}
     )
     select true as fresh${countRowsSql(text)}`,
  );
}

function countRowsSql(text: string): string {
  const query =
    /^\s*(select|with\b[^]*\bselect)\b/i.test(text) && !/\b(insert|update|delete|merge)\b/i.test(text);
  return query ? ", (select count(*) from effect) as effects" : "";
}

/** The statements that measure each consumer in one worker at a time. `schema` must be quoted. */
export function lagStatements(schema: string) {
  return {
    // Returns the consumers that this worker measures now: those that no worker claimed lately. A new row is claimed by
    // nobody: its consumer may not have subscribed yet.
    claim: defineStatement(
      "sagabox.inbox.lag_claim",
      `with wanted as materialized (
         select distinct name from unnest($1::text::text[]) as given (name)
       ), added as (
         insert into ${schema}.consumer_lag (consumer, transport, claimed_at)
         select name, $2::text, clock_timestamp() from wanted order by name
         on conflict do nothing
       )
       update ${schema}.consumer_lag as known
          set claimed_at = clock_timestamp()
        where consumer in (select name from wanted)
          and claimed_at < clock_timestamp() - $3::double precision * interval '1 ms'
       returning consumer`,
    ),
    store: defineStatement(
      "sagabox.inbox.lag_store",
      `update ${schema}.consumer_lag as known
          set measured_at = clock_timestamp(), transport = $3::text, lags = measured.lags
         from unnest($1::text::text[], $2::text::text[]) as measured (consumer, lags)
        where known.consumer = measured.consumer`,
    ),
    read: defineStatement(
      "sagabox.inbox.lag_read",
      `select consumer, transport, lags,
              (extract(epoch from clock_timestamp() - measured_at) * 1000)::double precision as age_ms
         from ${schema}.consumer_lag
        where $1::text is null or consumer = any($1::text::text[])
        order by consumer limit 500`,
    ),
  };
}
