"use strict";

document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = JSON.stringify({ token: document.getElementById("token").value });
  const headers = { "Content-Type": "application/json" };
  try {
    const response = await fetch("/login", { method: "POST", headers, body });
    if (response.ok) location.replace(event.target.dataset.to);
    else document.getElementById("problem").textContent = "This token is not valid.";
  } catch (error) {
    document.getElementById("problem").textContent = "No response from Trueup (" + error.message + ").";
  }
});
