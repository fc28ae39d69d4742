// Who is signed in, and what they may do.
import { computed, signal } from "@preact/signals";
import type { Me, RouteName } from "../../src/dashboard/api-types.ts";
import { call, CallError, errorText, whenSignedOut } from "./api.ts";

export const me = signal<Me | undefined>(undefined);
export const isSignedIn = computed(() => me.value !== undefined);
/** What the sign-in page has to say. */
export const signInProblem = signal<string | undefined>(undefined);
export const isStarting = signal(true);
export const startProblem = signal<string | undefined>(undefined);

whenSignedOut(signedOut);

export function signedOut(): void {
  if (me.peek() !== undefined)
    signInProblem.value = "Your session has ended. Sign in again to continue here.";
  me.value = undefined;
}

/** Signs in with the code of a one-time link, or goes on with the session that exists. */
export async function startSession(): Promise<void> {
  isStarting.value = true;
  startProblem.value = undefined;
  const code = /^#code=([^&]+)/.exec(location.hash)?.[1];
  if (code !== undefined) {
    // The code works once. It must not stay in the history.
    history.replaceState(null, "", "#/");
    await signIn({ code: decodeURIComponent(code) });
  }
  try {
    me.value = await call("me", {});
    signInProblem.value = undefined;
  } catch (error) {
    if (!(error instanceof CallError) || error.status !== 401) startProblem.value = errorText(error);
  } finally {
    isStarting.value = false;
  }
}

/** Signs in. A refusal is in `signInProblem`. */
export async function signIn(credentials: { code: string } | { token: string }): Promise<void> {
  try {
    me.value = await call("session.signIn", { body: credentials });
    signInProblem.value = undefined;
  } catch (error) {
    signInProblem.value = errorText(error);
  }
}

export async function signOut(): Promise<void> {
  await call("session.signOut", { body: {} });
  me.value = undefined;
  signInProblem.value = "You have signed out.";
}

/** Why this person may not call a route; null if they may. */
export function whyNot(name: RouteName): string | null {
  const permission = me.value?.permissions.find(({ route }) => route === name);
  if (permission === undefined) return "The server does not offer this action.";
  return permission.allowed ? null : (permission.why ?? `This needs the role ${permission.role}.`);
}
