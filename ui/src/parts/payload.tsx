// Payloads: hidden until a person with the right reveals them, which is recorded.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Masked, Revealed, RouteName } from "../../../src/dashboard/api-types.ts";
import { formatBytes } from "../format.ts";
import { isJson, prettyPrint, tokenize } from "../json-text.ts";
import { ActionButton, ActionDialog } from "./action.tsx";
import { whyNot } from "../session.ts";
import { Copy } from "./text.tsx";

/** JSON with one value per line. Numbers keep every digit. Long strings are cut by the layout only. */
export function Json({ text, label }: { text: string; label: string }): JSX.Element {
  const pretty = prettyPrint(text);
  return (
    <div class="json">
      <div class="json-tools">
        {!isJson(text) && <span class="muted small">Not JSON; shown as text.</span>}
        <Copy text={pretty} what={label} />
      </div>
      <pre tabIndex={0} aria-label={label} role="group">
        {tokenize(pretty).map(({ kind, text: part }, index) =>
          kind === "space" || kind === "mark" ? (
            part
          ) : (
            <span key={index} class={`j-${kind}`}>
              {part}
            </span>
          ),
        )}
      </pre>
    </div>
  );
}

interface PayloadProps {
  readonly payload: Masked;
  readonly route: RouteName;
  /** What is revealed, for the dialog: "the data of this message". */
  readonly what: string;
  readonly reveal: (reason: string) => Promise<Revealed>;
  readonly onRevealed?: (revealed: Revealed) => void;
}

export function Payload({ payload, route, what, reveal, onRevealed }: PayloadProps): JSX.Element {
  const [isAsking, setAsking] = useState(false);
  const [revealed, setRevealed] = useState<Revealed>();
  useEffect(() => setRevealed(undefined), [what]);
  return (
    <>
      {revealed === undefined ? (
        <div class="masked">
          <span class="bars" aria-hidden="true" />
          <p>
            {formatBytes(payload.bytes)}, hidden.
            {payload.isEncrypted && " Personal fields are encrypted and stay so."}
            {payload.isClaimChecked && " The data are in the blob store; only the reference is here."}
          </p>
          <ActionButton label="Reveal" why={whyNot(route)} onPress={() => setAsking(true)} />
        </div>
      ) : (
        <>
          <Json text={revealed.data} label="the data" />
          {Object.keys(revealed.headers).length > 0 && (
            <details>
              <summary>Headers</summary>
              <Json text={JSON.stringify(revealed.headers)} label="the headers" />
            </details>
          )}
          <button type="button" class="btn" onClick={() => setRevealed(undefined)}>
            Hide again
          </button>
        </>
      )}
      {isAsking && (
        <ActionDialog
          title={`Reveal ${what}`}
          plan={<p>The data are shown to you on this page. That you looked, and why, is in the audit log.</p>}
          verb="Reveal"
          run={async (reason) => {
            const answer = await reveal(reason);
            setRevealed(answer);
            onRevealed?.(answer);
            return { what: "Revealed. The audit log has your reason." };
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
