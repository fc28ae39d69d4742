// Edits the data of a dead letter: reveal, change, check against the schema, look at the difference, then replay.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { DeadLetterView, EditPlanView } from "../../../src/dashboard/api-types.ts";
import { call } from "../api.ts";
import { diffLines, isJson, prettyPrint } from "../json-text.ts";
import { hrefTo } from "../router.ts";
import { useRead } from "../use-read.ts";
import { ActionDialog, Failure, forbidden } from "../parts/action.tsx";
import { Diff } from "../parts/diff.tsx";
import { Empty, Loaded, Page, Panel } from "../parts/page.tsx";
import { Payload } from "../parts/payload.tsx";
import { Status } from "../parts/status.tsx";
import { Id } from "../parts/text.tsx";

export function EditLetterPage({ id }: { id: string }): JSX.Element {
  const read = useRead("deadLetters.show", { params: { id } });
  return (
    <Page
      title="Edit and replay"
      lead={
        <>
          Dead letter <Id id={id} href={hrefTo(["dead-letters", id])} />
        </>
      }
    >
      <Loaded read={read}>{(letter) => <Editor letter={letter} />}</Loaded>
    </Page>
  );
}

function Editor({ letter }: { letter: DeadLetterView }): JSX.Element {
  const legality = letter.actions.find(({ action }) => action === "edit");
  const why = forbidden("deadLetters.edit", legality);
  const [text, setText] = useState<string>();
  const [plan, setPlan] = useState<EditPlanView>();
  const [failure, setFailure] = useState<unknown>();
  const [isChecking, setChecking] = useState(false);
  const [isAsking, setAsking] = useState(false);
  useEffect(() => setPlan(undefined), [text]);

  if (why !== null && plan === undefined && text === undefined) {
    return (
      <Empty title="This dead letter cannot be edited.">
        <p>{why}</p>
      </Empty>
    );
  }
  const check = async (): Promise<void> => {
    setChecking(true);
    setFailure(undefined);
    try {
      setPlan(await call("deadLetters.editPlan", { params: { id: letter.id }, body: { data: text ?? "" } }));
    } catch (error) {
      setFailure(error);
    } finally {
      setChecking(false);
    }
  };
  return (
    <>
      <Panel title="1. The data as they are">
        <Payload
          payload={letter.payload}
          route="deadLetters.reveal"
          what={`the data of dead letter ${letter.id}`}
          reveal={(reason) => call("deadLetters.reveal", { params: { id: letter.id }, body: { reason } })}
          onRevealed={({ data }) => setText((old) => old ?? prettyPrint(data))}
        />
      </Panel>
      {text !== undefined && (
        <Panel title="2. Change them">
          <label class="field">
            <span>New data, as JSON. Encrypted fields must stay as they are.</span>
            <textarea
              rows={Math.min(24, Math.max(8, text.split("\n").length + 1))}
              value={text}
              spellcheck={false}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <div class="next">
            <button
              type="button"
              class="btn primary"
              disabled={isChecking || !isJson(text)}
              onClick={() => void check()}
            >
              {isChecking ? "Waiting for the server…" : "Check"}
            </button>
            {!isJson(text) && <Status word="not JSON yet" tone="warn" />}
          </div>
          {failure !== undefined && <Failure error={failure} />}
        </Panel>
      )}
      {plan !== undefined && (
        <Panel title="3. Look at the difference">
          <p>
            {plan.contract === null ? (
              <>
                <Status word="schema not checked" tone="warn" /> This process knows no contract for{" "}
                {letter.type}; the consumer checks it.
              </>
            ) : (
              <>
                <Status word="schema passed" tone="ok" /> {plan.contract}
              </>
            )}
          </p>
          <Diff lines={diffLines(prettyPrint(plan.before), prettyPrint(plan.after))} />
          <button type="button" class="btn primary" onClick={() => setAsking(true)}>
            Replay with these data
          </button>
        </Panel>
      )}
      {isAsking && plan !== undefined && text !== undefined && (
        <ActionDialog
          title="Replay with new data"
          plan={
            <p>
              The message keeps its id and gets the new data. Hashes of both versions, and your reason, are in
              the audit log.
            </p>
          }
          verb="Replay with new data"
          command={legality?.command}
          run={async (reason) => {
            const body = { data: text, confirm: plan.afterHash, reason };
            const done = await call("deadLetters.edit", { params: { id: letter.id }, body });
            return {
              ...done,
              link: { href: hrefTo(["messages", letter.messageId]), text: "Watch the message" },
            };
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
