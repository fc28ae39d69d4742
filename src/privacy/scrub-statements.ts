import { defineStatement } from "../storage/index.ts";
import { FORMAT } from "./encrypted-token.ts";

// Sealed itself, or with sealed values or attachments in it: most replies say nothing in their headers.
export const mentions = `exists (select from unnest($1::text::text[]) as k
                where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data, '"keyId":"' || k || '"') > 0)`;

// What lies where a value was, to the letter: data of users may look like it.
const encryptedForm = `'\\{"\\$sealed":"${FORMAT}\\.[A-Za-z0-9_-]{22}\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+"\\}'`;

// Texts of failed attempts, which quote what they please. The message is there as long as its row is.
const scrubErrors = (schema: string, table: "outbox" | "queue"): string =>
  `update ${schema}.${table} as row set last_error = '[erased]'
    where row.last_error <> '[erased]'
      and exists (select from ${schema}.message
                   where message.id = row.message_id and message.written_on = row.written_on and ${mentions})`;

/** SQL that removes what was written in clear about messages under some keys. `schema` is quoted already. */
export function scrubStatements(schema: string) {
  return {
    scrubDeadLetters: defineStatement(
      "sagabox.privacy.scrub_dead_letters",
      `update ${schema}.dead_letter set error_message = '[erased]', stack_trace = null
        where (error_message <> '[erased]' or stack_trace is not null) and ${mentions}`,
    ),
    scrubOutbox: defineStatement("sagabox.privacy.scrub_outbox", scrubErrors(schema, "outbox")),
    scrubQueue: defineStatement("sagabox.privacy.scrub_queue", scrubErrors(schema, "queue")),
    // Why a request failed, where it waits for whoever asked. Written anew and not parsed: it may hold what jsonb refuses.
    scrubReplies: defineStatement(
      "sagabox.privacy.scrub_replies",
      `update ${schema}.reply
          set body = json_build_object('requestId', request_id, 'outcome', outcome,
                'reason', coalesce(substring(body from '"reason":"([a-z]+)"'), 'unknown'), 'error', '[erased]')::text
        where outcome = 'failed' and body !~ '"error" ?: ?"\\[erased\\]"'
          and exists (select from ${schema}.message where message.id = reply.request_id and ${mentions})`,
    ),
    // A reply whose personal fields are sealed has nothing else to hide.
    scrubResults: defineStatement(
      "sagabox.privacy.scrub_results",
      `update ${schema}.consumer_inbox as seen set result = '{"$erased":true}'
        where seen.result <> '{"$erased":true}' and seen.result !~ ${encryptedForm}
          and (seen.event_id in (
                 select message.id from ${schema}.message
                  where exists (select from unnest($1::text::text[]) as k where strpos(message.headers, k) > 0)
                 union all
                 select letter.message_id from ${schema}.dead_letter as letter
                  where exists (select from unnest($1::text::text[]) as k where strpos(letter.headers, k) > 0))
               or exists (select from unnest($1::text::text[]) as k where strpos(seen.payload, k) > 0))`,
    ),
  };
}
