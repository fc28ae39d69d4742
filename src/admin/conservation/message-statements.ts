import { defineStatement } from "../../storage/index.ts";

/** Receipts whose last seq is further away from the window are looked up by lane and seq. */
const REACH = 20_000;

/** Upper bound for the suspects of a window: messages that are not clearly in one state. */
export const MAX_SUSPECTS = 2_000;

/**
 * SQL about windows of messages. A window is a range of pages of one day's partition. Pages are filled in the order in
 * which messages are written, so the receipts of a window are close together too. `schema` must be quoted already.
 */
export function messageStatements(schema: string) {
  return {
    // Days that may have messages, and the pages of their partitions. A day without its own partition is in the default one.
    days: defineStatement(
      "sagabox.conservation.days",
      `with parts as materialized (
         select child.relname as name, pg_relation_size(child.oid) / current_setting('block_size')::bigint as pages
           from pg_inherits
           join pg_class as child on child.oid = pg_inherits.inhrelid
          where pg_inherits.inhparent = ($1::text || '.message')::regclass
       ), span as materialized (
         select greatest($2::text::date, today - 3650) as first, today
           from (select (clock_timestamp() at time zone 'utc')::date as today) as clock
       )
       select to_char(day.day, 'YYYY-MM-DD') as day, day.day::date = span.today as newest,
              coalesce(own.pages, spare.pages, 0)::integer as pages
         from span
        cross join lateral generate_series(span.first, span.today, interval '1 day') as day (day)
         left join parts as own on own.name = 'message_' || to_char(day.day, 'YYYYMMDD')
         left join parts as spare on spare.name = 'message_default'
        where coalesce(own.pages, spare.pages, 0) > 0
        order by day.day`,
    ),
    // The state of each message in the window, in one snapshot. Writing, sending and dead-lettering each change all these
    // tables in one transaction, so a snapshot never shows an intermediate state.
    window: defineStatement(
      "sagabox.conservation.window",
      `with page as materialized (
         select id, lane::integer as lane, seq, written_on - (written_at at time zone 'utc')::date > 1 as old
           from ${schema}.message
          where written_on = $1::text::date and ctid >= $2::text::tid and ctid < $3::text::tid and seq > 0
       ), edge as materialized (
         -- From here on numbers were drawn on this day: a lower one of an old message came from a day that was dropped.
         select coalesce(least(min(seq) filter (where not old), $4::text::bigint + 1), max(seq) + 1) as fresh,
                max(seq) as high
           from page
       ), noted as materialized (
         select receipt.lane, named.seq, receipt.sent_at,
                case when receipt.again_seqs is null then null else named.seq = any(receipt.again_seqs) end as again
           from edge
          cross join generate_series(0, 255) as walk (lane)
          cross join lateral (
            select lane, seqs, sent_at, again_seqs
              from ${schema}.receipt
             where receipt.lane = walk.lane and receipt.last_seq between edge.fresh and edge.high + ${REACH}
               and receipt.sent_on between $1::text::date and $1::text::date + 1
            offset 0 -- looked up lane by lane, however few the planner thinks there are
          ) as receipt
          cross join lateral unnest(receipt.seqs) as named (seq)
          where named.seq between edge.fresh and edge.high
       ), sent as materialized (
         select lane, seq, count(*)::integer as times, min(sent_at) as at from noted group by lane, seq
       ), facts as materialized (
         select page.id, page.lane, page.seq, page.old and page.seq < edge.fresh as carried,
                coalesce(sent.times, 0) as times, sent.at as sent_at,
                case when row.due_at = 'infinity' then 'held' when row.seq is not null then 'waiting' end as standing,
                letters.*
           from page
          cross join edge
           left join sent on sent.lane = page.lane and sent.seq = page.seq
           left join lateral (
             select own.seq, own.due_at from ${schema}.outbox as own
              where own.lane = page.lane and own.seq = page.seq and own.message_id = page.id offset 0
           ) as row on true
           left join lateral (
             select count(*)::integer as letters,
                    count(*) filter (where letter.closed_at is null)::integer as open,
                    min(letter.failed_at) filter (where letter.closed_at is null) as open_since,
                    count(*) filter (where letter.closed_as = 'replayed')::integer as replayed,
                    max(letter.closed_at) filter (where letter.closed_as = 'replayed') as replayed_at
               from ${schema}.dead_letter as letter
              where letter.message_id = page.id and letter.origin = 'outbox'
           ) as letters on true
       ), judged as materialized (
         -- The account of what needs no explanation; however many died while a broker refused them all.
         select facts.*,
                case when times = 1 and standing is null and open = 0 then 'sent'
                     when times <> 0 then null
                     when standing = 'waiting' then case when open = 0 then 'waiting' end
                     when standing = 'held' or open > 0 then 'dead'
                     when letters > replayed then 'discarded' end as plain
           from facts
       )
       select (select count(*)::integer from page) as messages, (select high::text from edge) as high,
              (select coalesce(json_agg(json_build_object('lane', lane, 'written', written, 'sent', sent,
                        'waiting', waiting, 'dead', dead, 'discarded', discarded)), '[]')
                 from (select lane, count(*) as written, count(*) filter (where plain = 'sent') as sent,
                              count(*) filter (where plain = 'waiting') as waiting,
                              count(*) filter (where plain = 'dead') as dead,
                              count(*) filter (where plain = 'discarded') as discarded
                         from judged group by lane) as lanes)::text as lanes,
              (select coalesce(json_agg(json_build_object('id', id, 'lane', lane, 'seq', seq::text, 'carried', carried,
                        'times', times, 'sentAt', sent_at, 'row', standing, 'letters', letters, 'open', open,
                        'openSince', open_since, 'replayed', replayed, 'replayedAt', replayed_at)), '[]')
                 from (select * from judged where plain is null order by lane, seq limit ${MAX_SUSPECTS}) as few)::text as suspects,
              (select count(*)::integer from judged where plain is null) as suspected,
              (select coalesce(json_agg(json_build_object('lane', lane, 'seq', seq::text)), '[]')
                 from (select lane, seq from noted
                        where again = false and not exists (
                              select 1 from page where page.lane = noted.lane and page.seq = noted.seq)
                        order by seq limit ${MAX_SUSPECTS}) as few)::text as strangers`,
    ),
    // For messages that the window cannot explain: traces of them in all other tables.
    traces: defineStatement(
      "sagabox.conservation.traces",
      `select asked.id,
              exists (select 1 from ${schema}.receipt
                       where receipt.lane = asked.lane and receipt.last_seq >= asked.seq and receipt.first_seq <= asked.seq
                         and receipt.sent_on >= $4::text::date and asked.seq = any(receipt.seqs) offset 0) as sent,
              exists (select 1 from ${schema}.outbox where again and message_id = asked.id offset 0) as waits_again,
              exists (select 1 from ${schema}.receipt
                       where receipt.lane = asked.lane and receipt.last_seq > asked.seq
                         and asked.id = any(receipt.again_ids) offset 0) as sent_again,
              exists (select 1 from ${schema}.receipt
                       where receipt.lane = asked.lane and receipt.last_seq > asked.seq and receipt.again_seqs is null offset 0) as untold,
              exists (select 1 from ${schema}.consumer_group as known
                        join ${schema}.consumer_inbox as inbox on inbox.consumer_name = known.name and inbox.event_id = asked.id offset 0)
                or exists (select 1 from ${schema}.dead_letter as letter
                            where letter.message_id = asked.id and letter.origin = 'consumer' offset 0)
                or exists (select 1 from ${schema}.consumer_group as known
                             join ${schema}.queue on queue.lane = known.id * 256 + asked.lane and queue.message_id = asked.id offset 0)
                or exists (select 1 from ${schema}.message as twin
                            where twin.id = asked.id and twin.written_on <> $4::text::date offset 0) as delivered
         from unnest($1::text::text[], $2::text::integer[], $3::text::bigint[]) as asked (id, lane, seq)`,
    ),
    // Messages that a receipt names but that are not in the window: looks for them in nearby pages.
    presentNear: defineStatement(
      "sagabox.conservation.present_near",
      `select message.lane::integer as lane, message.seq::text as seq
         from ${schema}.message
        where message.written_on = $3::text::date and message.ctid >= $4::text::tid and message.ctid < $5::text::tid
          and (message.lane::integer, message.seq) in (select * from unnest($1::text::integer[], $2::text::bigint[]))`,
    ),
    // Looks for such messages in all pages. This reads whole days, so it runs only before a message is reported missing. The
    // seq is drawn together with the day, so the day of a message is at most one day before that of the window.
    presentAnywhere: defineStatement(
      "sagabox.conservation.present_anywhere",
      `select message.lane::integer as lane, message.seq::text as seq
         from ${schema}.message
        where message.written_on >= $3::text::date - 1
          and (message.lane::integer, message.seq) in (select * from unnest($1::text::integer[], $2::text::bigint[]))`,
    ),
  };
}
