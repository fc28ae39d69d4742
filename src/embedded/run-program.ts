import { spawn } from "node:child_process";
import { SagaboxError, toError } from "../errors/index.ts";
import type { ServerAccount } from "./account.ts";

export interface ProgramResult {
  /** Undefined if the program could not be run or was ended by a signal. */
  readonly exitCode: number | undefined;
  readonly output: string;
  readonly error: Error | undefined;
}

/** A minimal environment: variables such as PGDATA or PGOPTIONS would change what the programs do. */
export function programEnvironment(): NodeJS.ProcessEnv {
  const { PATH, LD_LIBRARY_PATH } = process.env;
  return {
    LC_ALL: "C",
    ...(PATH === undefined ? {} : { PATH }),
    ...(LD_LIBRARY_PATH === undefined ? {} : { LD_LIBRARY_PATH }),
  };
}

/** Runs a program until it exits. Never rejects. */
export function runProgram(
  path: string,
  args: readonly string[],
  account?: ServerAccount,
): Promise<ProgramResult> {
  return new Promise((resolve) => {
    let output = "";
    const finish = (exitCode: number | null, error?: Error): void =>
      resolve({ exitCode: exitCode ?? undefined, output: output.trim(), error });
    try {
      const child = spawn(path, args, {
        cwd: "/",
        env: programEnvironment(),
        stdio: ["ignore", "pipe", "pipe"],
        ...account,
      });
      child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
      child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
      child.on("error", (error) => finish(null, error));
      child.on("close", (code) => finish(code));
    } catch (error) {
      finish(null, toError(error));
    }
  });
}

export function embeddedFailure(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("EMBEDDED_POSTGRES_FAILED", message, cause === undefined ? {} : { cause });
}

/** Returns the error code of the operating system, such as "EACCES", if the error has one. */
export function systemErrorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}
