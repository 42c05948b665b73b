// The link's secret stands behind the #. It is taken out of the address bar and the history before it is sent.
"use strict";
const secret = location.hash.slice(1);
if (secret) {
  history.replaceState(null, "", location.pathname);
  document.getElementById("link").value = secret;
  document.getElementById("sign-in").requestSubmit();
}
