// Every action: what it would do, the reason for the audit log, then what the server answered. Nothing is called done before
// the server said so.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Legality, RouteName } from "../../../src/dashboard/api-types.ts";
import { CallError, errorText } from "../api.ts";
import { whyNot } from "../session.ts";
import { changes } from "../use-read.ts";
import { announce } from "./announce.tsx";
import { Status } from "./status.tsx";
import { Command } from "./text.tsx";

export interface Outcome {
  /** What the server did, in its words. */
  readonly what: string;
  readonly command?: string | undefined;
  readonly link?: { readonly href: string; readonly text: string };
  /** False if nothing was changed, because it was done before. */
  readonly isNew?: boolean;
}

interface DialogProps {
  readonly title: string;
  /** What will happen. */
  readonly plan: ComponentChildren;
  readonly verb: string;
  readonly isDangerous?: boolean | undefined;
  readonly command?: string | undefined;
  /** Fields besides the reason. */
  readonly fields?: ComponentChildren;
  /** Why the action cannot be confirmed yet; undefined if it can. */
  readonly blocked?: string | undefined;
  readonly run: (reason: string) => Promise<Outcome>;
  readonly onClose: () => void;
}

export function ActionDialog(props: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [state, setState] = useState<"asking" | "running" | "done" | "failed">("asking");
  const [outcome, setOutcome] = useState<Outcome>();
  const [failure, setFailure] = useState<unknown>();
  const id = useId();

  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (state === "running") return;
    setState("running");
    try {
      const result = await props.run(reason.trim());
      setOutcome(result);
      setState("done");
      announce(result.what);
      changes.value += 1;
    } catch (error) {
      setFailure(error);
      setState("failed");
    }
  };

  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby={`${id}-title`}
      onClose={props.onClose}
      onCancel={(event) => {
        if (state === "running") event.preventDefault();
      }}
    >
      <h2 id={`${id}-title`}>{props.title}</h2>
      {state === "done" && outcome !== undefined ? (
        <Result outcome={outcome} onClose={() => dialog.current?.close()} />
      ) : (
        <form onSubmit={(event) => void submit(event)}>
          <div class="plan">{props.plan}</div>
          {props.fields}
          <label class="field" for={`${id}-reason`}>
            <span>Reason, for the audit log</span>
            <input
              id={`${id}-reason`}
              required
              maxLength={1000}
              value={reason}
              placeholder="What you know, or the ticket"
              autocomplete="off"
              onInput={(event) => setReason(event.currentTarget.value)}
            />
          </label>
          {props.command !== undefined && props.command !== "" && (
            <Command label="On the command line" text={withReason(props.command, reason)} />
          )}
          {state === "failed" && <Failure error={failure} />}
          <div class="buttons">
            <button
              type="button"
              class="btn"
              disabled={state === "running"}
              onClick={() => dialog.current?.close()}
            >
              Cancel
            </button>
            <button
              type="submit"
              class={`btn ${props.isDangerous === true ? "danger" : "primary"}`}
              disabled={state === "running" || props.blocked !== undefined}
            >
              {state === "running" ? "Waiting for the server…" : props.verb}
            </button>
          </div>
          {props.blocked !== undefined && <p class="muted small">{props.blocked}</p>}
        </form>
      )}
    </dialog>
  );
}

/** The command line of the server with the reason that was typed. */
function withReason(command: string, reason: string): string {
  const quoted = `"${reason.trim().replaceAll(/(["\\$`])/g, String.raw`\$1`)}"`;
  return reason.trim() === "" ? command : command.replace(/"<reason>"|<reason>/, () => quoted);
}

function Result({ outcome, onClose }: { outcome: Outcome; onClose: () => void }): JSX.Element {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => button.current?.focus(), []);
  return (
    <div>
      <p class="result">
        <Status word={outcome.isNew === false ? "nothing changed" : "done"} />
        <span>{outcome.what}</span>
      </p>
      {outcome.command !== undefined && outcome.command !== "" && (
        <Command label="On the command line it would have been" text={outcome.command} />
      )}
      <div class="buttons">
        {outcome.link !== undefined && (
          <a class="btn primary" href={outcome.link.href} onClick={onClose}>
            {outcome.link.text}
          </a>
        )}
        <button type="button" class="btn" ref={button} onClick={onClose}>
          Close
        </button>
      </div>
    </div>
  );
}

export function Failure({ error }: { error: unknown }): JSX.Element {
  const isUnknown = error instanceof CallError && error.code === "NO_ANSWER";
  return (
    <div class="box bad" role="alert">
      <p>
        <strong>{isUnknown ? "Outcome unknown. " : "Not done. "}</strong>
        {errorText(error)}
      </p>
      {error instanceof CallError && (
        <p class="muted small">
          <code>{error.code}</code>
          {error.reference !== null && ` · reference ${error.reference} in the log of the server`}
        </p>
      )}
    </div>
  );
}

interface ButtonProps {
  readonly label: string;
  /** Why it is not possible; null if it is. */
  readonly why: string | null;
  readonly onPress: () => void;
  readonly tone?: "primary" | "danger";
}

/** A button that stays reachable when it is forbidden, so that the keyboard and screen readers find the reason. */
export function ActionButton({ label, why, onPress, tone }: ButtonProps): JSX.Element {
  const id = useId();
  return (
    <span class="action">
      <button
        type="button"
        class={`btn ${tone ?? ""}`}
        aria-disabled={why !== null}
        aria-describedby={why === null ? undefined : id}
        onClick={() => (why === null ? onPress() : announce(why))}
      >
        {label}
      </button>
      {why !== null && (
        <span class="why" id={id}>
          {why}
        </span>
      )}
    </span>
  );
}

/** Why an action is impossible: the role first, then the state of the thing. */
export function forbidden(route: RouteName, legality: Legality | undefined): string | null {
  return (
    whyNot(route) ??
    (legality === undefined || legality.allowed ? null : (legality.why ?? "Not possible now."))
  );
}
